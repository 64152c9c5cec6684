"""Warm start: programs are forked from a process that has imported torch already, and never run an operation."""
