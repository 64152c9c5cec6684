"""Numbers that are derived from a whole record, over all ranks: metrics in their own right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from types import MappingProxyType

from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.question import Metric
from bisect_train.verdict.triage.curves import num_spikes
from bisect_train.verdict.triage.parameters import moved_share
from bisect_train.verdict.triage.run_view import RunView
from bisect_train.verdict.triage.samples import cover


def _coverage(run: RunView) -> float | None:
    found = cover(run, run.ranks, run.shared_steps)
    return found.share if found.total else None


def _pre_clip_norm(run: RunView) -> float | None:
    norms = run.pre_clip_norms
    return median(norms.values()) if norms else None


def _num_spikes(run: RunView) -> float | None:
    return float(num_spikes(run)) if run.has_stepped else None


def _rank_gap(run: RunView) -> float | None:
    sampled = run.sampled_steps
    if not sampled or len(run.steps) < 2:
        return None
    return float(any(len(set(run.param_hashes(step).values())) > 1 for step in sampled))


_READERS: Mapping[str, Callable[[RunView], float | None]] = MappingProxyType(
    {
        "coverage": _coverage,
        "moved": moved_share,
        "pre_clip_norm": _pre_clip_norm,
        "num_spikes": _num_spikes,
        "rank_gap": _rank_gap,
    }
)

DERIVED_METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        # distinct samples / samples, over all ranks and steps, 0 to 1
        "coverage": Metric("coverage", reduce="last", better="higher"),
        # share of weights that moved since the start, 0 to 1, of the rank where it is least
        "moved": Metric("moved", reduce="last", better="higher"),
        # gradient norm before clipping over all ranks, median of the steps
        "pre_clip_norm": Metric("pre_clip_norm", reduce="last", better="lower"),
        # number of loss spikes
        "num_spikes": Metric("num_spikes", reduce="last", better="lower"),
        # 1 if parameters differ between ranks at any step, else 0
        "rank_gap": Metric("rank_gap", reduce="last", better="lower"),
    }
)
"""Metrics that take the whole record of a run, one value each, as they are judged."""


def derived_metric(fingerprint: Fingerprint, name: str) -> float | None:
    """Return one derived number of a run, None where the record does not have what it takes.

    Raises:
        ValueError: the name is none of DERIVED_METRICS.
    """
    if name not in _READERS:
        raise ValueError(f"no derived metric {name!r}; known: {', '.join(_READERS)}")
    return _READERS[name](RunView.of_fingerprint(fingerprint))
