"""From the runs of a commit to its level: the values that the nights are compared by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from bisect_train.core.question import Question
from bisect_train.nightly.terms import Level
from bisect_train.verdict.end_terms import Ends
from bisect_train.verdict.outcome import Outcome, OutcomeKind


def level_of_ends(ends: Ends, commit: str, question: Question, spec: Mapping[str, Any]) -> Level | None:
    """Return the level of the bad end of a comparison, None where it shows no value, or one that depends on the good end.

    Args:
        ends: what the runs of the ends have shown.
        commit: the bad end.
        question: on the rung that gave the answer.
        spec: of one of the runs.
    """
    metric = question.metric
    if not ends.bad_values or metric.is_paired:
        return None
    sign = -1 if metric.better == "higher" else 1
    values = {idx: sign * value for idx, value in sorted(ends.bad_values.items())}
    bits = {idx: digest for idx, digest in sorted(ends.bad_digests.items()) if digest}
    return Level(commit, scale_of(question, spec), metric.name, metric.unit, sign, values, bits, ends.min_effect)


def level_of_runs(
    commit: str, question: Question, spec: Mapping[str, Any], runs: Sequence[tuple[int, Outcome]]
) -> Level | None:
    """Return the level that single runs of a commit give, None where they show no value.

    Args:
        runs: seed index and outcome of each.
    """
    metric = question.metric
    values = {idx: seen.value for idx, seen in runs if seen.kind is OutcomeKind.MEASURED and seen.value is not None}
    if not values or metric.is_paired:
        return None
    bits = {idx: seen.digest for idx, seen in runs if seen.digest}
    sign = -1 if metric.better == "higher" else 1
    effect = question.min_effect or 0.0
    return Level(commit, scale_of(question, spec), metric.name, metric.unit, sign, values, bits, effect)


def scale_of(question: Question, spec: Mapping[str, Any]) -> str:
    """Return what values hold for: those of another metric, rung, way of measuring or platform are never compared with them."""
    metric, settings = question.metric, question.settings
    parts = [metric.name, metric.reduce, question.rung.name, settings.measure_digest, *question.command, question.data]
    parts += [str(spec.get("hardware_class")), str(spec.get("interpreter"))]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
