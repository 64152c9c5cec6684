"""Findings as lines on the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from bisect_train.cli.checkup import Finding
from bisect_train.cli.terminal import say


def say_findings(findings: Iterable[Finding]) -> int:
    """Print findings as they come, each that is no good with what mends it; return how many of these there are."""
    num_bad = 0
    for finding in findings:
        num_bad += not finding.is_fine
        say(f"{'ok  ' if finding.is_fine else 'FAIL'}  {finding.what:<12} {finding.found}")
        if not finding.is_fine and finding.remedy:
            say(f"      {finding.remedy}")
    return num_bad
