"""What `compare A B` says of the kind of failure: of B against A, and of A alone."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from bisect_train.cli.asked import Output
from bisect_train.cli.delivering import write_text
from bisect_train.core.probe import ProbeResult
from bisect_train.core.question import Question
from bisect_train.report.rank_divergence import divergences_by_rank
from bisect_train.report.triage_case import asked_of
from bisect_train.report.triage_json import triage_to_json
from bisect_train.report.triage_parts import TriagePart
from bisect_train.report.triage_text import render_triage
from bisect_train.report.triage_view import triage_run
from bisect_train.report.wire import clean_json
from bisect_train.verdict.divergence import first_divergence


@dataclass(frozen=True, slots=True)
class Compared:
    """Two runs of the same seed, their names, and what triage says: of the right against the left, and of the left alone."""

    left: ProbeResult
    right: ProbeResult
    names: tuple[str, str]
    part: TriagePart
    left_alone: TriagePart


def triage_compared(results: tuple[ProbeResult, ProbeResult], question: Question, *, names: tuple[str, str]) -> Compared:
    """Return what is to be said of two runs."""
    left, right = results
    asked = asked_of(question)
    return Compared(left, right, names, triage_run(right, baseline=left, asked=asked), triage_run(left, asked=asked))


def render_compared(compared: Compared) -> RenderableType:
    """Return the triage of both runs for the terminal."""
    alone = [Text(""), Text("A by itself:"), render_triage(compared.left_alone)] if compared.left_alone.findings else []
    return Group(Text(""), Text("B against A:"), render_triage(compared.part, run="B", baseline="A"), *alone)


def write_compared(compared: Compared, output: Output) -> None:
    """Write what was found as JSON where a place was named."""
    place = output.json or (output.out / "compare.json" if output.out else None)
    if place is not None:
        write_text(place, json.dumps(clean_json(_to_json(compared)), indent=2) + "\n")


def _to_json(compared: Compared) -> dict[str, Any]:
    fingerprints = compared.left.fingerprint, compared.right.fingerprint
    first = first_divergence(*fingerprints)
    by_rank = divergences_by_rank(*fingerprints)
    return {
        "left": {"name": compared.names[0], "probe": compared.left.job_id},
        "right": {"name": compared.names[1], "probe": compared.right.job_id},
        "first_divergence": asdict(first) if first else None,
        "by_rank": [{"rank": rank, "first_divergence": asdict(item) if item else None} for rank, item in by_rank],
        "triage": triage_to_json(compared.part),
        "triage_left": triage_to_json(compared.left_alone),
    }
