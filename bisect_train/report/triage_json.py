"""What a report says of the kind of a failure, as JSON: the keys of report.json, and for a single probe."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bisect_train.report.triage_parts import RankCurve, TriagePart
from bisect_train.verdict.triage import Finding


def triage_to_json(part: TriagePart) -> dict[str, Any]:
    """Return everything as a dict; NaN and Infinity are left in, the caller cleans them."""
    second = part.second
    return {
        "category": part.category,
        "symptom": part.symptom,
        "stage": part.stage,
        "evidence": list(part.evidence),
        "look_first": list(part.look_first),
        "findings": [_finding(item) for item in part.findings],
        "ranks": [_listed(asdict(row)) for row in part.ranks],
        "baseline_ranks": [_listed(asdict(row)) for row in part.baseline_ranks],
        "curves": [_curve(item) for item in part.curves],
        "stacks": [asdict(item) for item in part.stacks],
        "samples": [_listed(asdict(item)) for item in part.samples],
        "second_look": {"kind": second.kind.value, "said": list(second.said), "probe": second.key, "reason": second.reason}
        if second
        else None,
        "looked_at": list(part.looked_at),
        "cannot_see": list(part.cannot_see),
    }


def _finding(item: Finding) -> dict[str, Any]:
    return {
        "category": item.category.value,
        "symptom": item.symptom,
        "stage": item.stage.value,
        "step": item.step,
        "ranks": list(item.ranks),
        "summary": item.summary,
        "look_at": item.look_at,
        "needs_baseline": item.needs_baseline,
        "evidence": [asdict(evidence) for evidence in item.evidence],
    }


def _curve(item: RankCurve) -> dict[str, Any]:
    return _listed(asdict(item))


def _listed(data: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}
