"""Findings for the tests of telling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bisect_train.nightly.finding import Finding, FindingKind, FindingState, FoundChange
from tests.support.report_cases import sha

CULPRIT = sha("culprit")
HOSTILE = (
    'fixes #12 GH-7 @torvalds @acme/team <script>alert("x")</script> </details> <!-- bisect-train finding=other --> | cell | '
    "`code` **bold** _it_ [link](http://evil.example) ![i](https://evil.example/i) www.evil.example <!channel> <@U123> $x^2$ "
    "\x1b[31mred\x1b[0m \u202eesrever\nnext line | --- | --- |"
)
"""A commit's subject that tries everything."""


def make_finding(**more: Any) -> Finding:
    """Return a confirmed regression at its first telling."""
    plain = Finding(
        id="regression-0123456789ab",
        revision=1,
        state=FindingState.OPEN,
        kind=FindingKind.REGRESSION,
        watch="main",
        repo="https://github.com/acme/trainer",
        branch="main",
        title=f"loss is worse on main since {CULPRIT[:8]}",
        summary=f"Commit {CULPRIT[:8]} makes loss worse: 3.0 -> 3.4 nats (+0.4, sd 0.02, 3 + 3 fresh runs of 40 steps).",
        good=sha("good"),
        bad=sha("bad"),
        opened_s=1_700_000_000.0,
        changed_s=1_700_000_000.0,
        culprits=(FoundChange("commit", CULPRIT, "use the fast path", "Ada Lovelace", "ada@example.org"),),
        is_confirmed=True,
        bisection="65f0a1b2",
        links=(("the dashboard", "https://train.example.org/b/65f0a1b2"),),
    )
    return replace(plain, **more)


def updated(finding: Finding, **more: Any) -> Finding:
    """Return its next telling."""
    return replace(finding, revision=finding.revision + 1, state=FindingState.UPDATED, **more)


def closed(finding: Finding, **more: Any) -> Finding:
    """Return the telling that it is over."""
    mended = {"fixed_by": sha("mended"), "summary": f"Fixed in {sha('mended')[:8]}.", **more}
    return replace(finding, revision=finding.revision + 1, state=FindingState.CLOSED, **mended)
