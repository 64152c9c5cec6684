"""Unattended nights: what a branch's newest commit is compared with, what was found, and who has been told of it."""
