"""Intended changes: one that a bisection names is labelled, and the search goes on behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bisect_train.core.question import Question


def expected_culprit(question: Question, answer: dict[str, Any]) -> tuple[str, str] | None:
    """Return (commit, reason) where a stored answer names one commit, and that is an intended change; else None.

    Args:
        question: what was asked.
        answer: report.json of the bisection.
    """
    culprits = answer.get("culprits") or []
    if answer.get("status") not in ("isolated", "several") or len(culprits) != 1 or len(culprits[0]["changes"]) != 1:
        return None
    change = culprits[0]["changes"][0]
    reasons = dict(question.expected)
    return (change["id"], reasons[change["id"]]) if change["kind"] == "commit" and change["id"] in reasons else None


def question_behind(question: Question, commit: str) -> Question | None:
    """Return the question about what comes after an intended change; None where that is the bad end itself."""
    if commit == question.range.bad:
        return None
    first = question.at_rung(0) if question.ladder else question
    return replace(first, range=replace(question.range, goods=(commit,)), golden=(), num_earlier_attempts=0)
