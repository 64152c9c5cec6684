"""Triage: what kind of failure a run shows, at which stage of the step, on which rank. Pure."""

from bisect_train.verdict.triage.finding import Category, Evidence, Finding, SecondRun, Triage

__all__ = ["Category", "Evidence", "Finding", "SecondRun", "Triage"]
