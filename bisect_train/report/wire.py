"""`ReportData` as report.json, schema 1 of DESIGN.md: every key always there, strict JSON (no NaN, no Infinity)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bisect_train.report.parts import CellPart, ChangePart, CulpritPart, EndPart, ProbePart, ReportData
from bisect_train.report.triage_json import triage_to_json

SCHEMA = 1


def report_to_json(report: ReportData) -> dict[str, Any]:
    """Return report.json as a dict that strict JSON can hold."""
    cleaned: dict[str, Any] = clean_json(_render(report))
    return cleaned


def _render(report: ReportData) -> dict[str, Any]:
    coverage, cost = report.coverage, report.cost
    return {
        "schema": SCHEMA,
        "id": report.id,
        "status": report.status,
        "summary": report.summary,
        "kind_of_change": report.kind_of_change,
        "ends": {end.name: _end(end, report) for end in report.ends},
        "num_changes": dict(report.num_changes),
        "culprits": [_culprit(item, report.pair if len(item.changes) == 2 else ()) for item in report.culprits],
        "candidates": [{**_change(item.change), "probability": item.probability} for item in report.candidates],
        "null_probability": report.null_probability,
        "triage": triage_to_json(report.triage),
        "probe": {
            "steps": coverage.steps,
            "ranks": coverage.ranks,
            "rung": coverage.rung,
            "covers": list(coverage.covers),
            "cannot_see": list(coverage.cannot_see),
            "tried": list(coverage.tried),
        },
        "cost": {
            "probes": cost.probes,
            "rounds": cost.rounds,
            "steps": report.num_steps,
            "cached": cost.cached,
            "pruned": cost.pruned,
            "early": cost.early,
            "saved_steps": cost.saved_steps,
            "wall_s": cost.wall_s,
            "gpu_s": cost.gpu_s,
        },
        "probes": [_probe(row) for row in report.probes],
        "reproduce": [line for part in report.reproduce for line in (f"# {part.title}", *part.lines)],
        "warnings": list(report.warnings),
        "nodes": [
            {
                "name": node.name,
                "probes": node.num_finished,
                "lost": node.num_lost,
                "suspect": None if node.why is None else node.why.value,
                "reason": node.reason,
            }
            for node in report.nodes
        ],
    }


def _end(end: EndPart, report: ReportData) -> dict[str, Any]:
    return {
        "revision": end.revision,
        "config": end.config or None,
        "metric": report.metric.name,
        "unit": report.metric.unit,
        "mean": end.mean,
        "sd": end.sd,
        "num": end.num,
        "repeats_bitwise": end.repeats_bitwise,
        "ending": end.ending,
    }


def _change(part: ChangePart) -> dict[str, Any]:
    return {"kind": part.kind, "id": part.id, "title": part.title}


def _culprit(part: CulpritPart, pair: Sequence[CellPart]) -> dict[str, Any]:
    effect = part.effect
    names = ("metric", "unit", "good", "bad", "good_sd", "bad_sd", "num_good", "num_bad", "share", "share_low", "share_high")
    return {
        "changes": [_change(item) for item in part.changes],
        "probability": part.probability,
        "effect": {name: getattr(effect, name) if effect else None for name in names},
        "necessary": part.necessary,
        "sufficient": part.sufficient,
        "conditions": list(part.conditions),
        "inside": [_change(item) for item in part.inside],
        "two_by_two": [
            {"with": cell.name, "mean": cell.mean, "sd": cell.sd, "num_runs": cell.num_runs, "num_failed": cell.num_failed}
            for cell in pair
        ],
    }


def _probe(row: ProbePart) -> dict[str, Any]:
    return {
        "key": row.key,
        "point": row.point,
        "what": f"{row.what} {row.subject}".rstrip(),
        "purpose": row.purpose,
        "seed": row.seed_idx,
        "repeat": row.repeat,
        "ending": row.ending,
        "steps": row.steps,
        "value": row.value,
        "verdict": row.verdict,
        "wall_s": row.wall_s,
    }


def clean_json(value: Any) -> Any:
    """Return the value with NaN and Infinity as None."""
    if isinstance(value, dict):
        return {key: clean_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
