"""What a person said about versions, as evidence: it stands in place of that of their runs.

A mark weighs as much as the best single run. It rests on no run (`num_runs` is 0), so that a proof, which counts runs, is
never helped by it: marks steer the search, and fresh runs alone isolate an answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from bisect_train.core.verdict import Evidence, VerdictKind
from bisect_train.verdict.evidence import MAX_NATS

MARK_KINDS = (VerdictKind.GOOD, VerdictKind.BAD, VerdictKind.UNTESTABLE)
MARKED_UNTESTABLE = "marked untestable"
_NATS = {VerdictKind.GOOD: -MAX_NATS, VerdictKind.BAD: MAX_NATS, VerdictKind.UNTESTABLE: 0.0}


def evidence_of_mark(kind: VerdictKind) -> Evidence:
    """Return the evidence that a mark stands for.

    Args:
        kind: one of MARK_KINDS.
    Raises:
        ValueError: another kind.
    """
    if kind not in MARK_KINDS:
        raise ValueError(f"a mark is good, bad or untestable, got {kind.value}")
    reason = MARKED_UNTESTABLE if kind is VerdictKind.UNTESTABLE else f"marked {kind.value} by hand"
    return Evidence(kind, _NATS[kind], 0, reason)


def with_marks(evidence: Mapping[int, Evidence], marks: Mapping[int, VerdictKind]) -> dict[int, Evidence]:
    """Return the evidence by version where marks replace what runs said, in the order of the versions."""
    every = dict(evidence) | {version: evidence_of_mark(kind) for version, kind in marks.items()}
    return dict(sorted(every.items()))
