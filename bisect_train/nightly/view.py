"""A watch as JSON: for `--json`, the service and its page. Pure; every key is always there, and numbers carry their spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bisect_train.nightly.state import OVER, Night, WatchState
from bisect_train.nightly.terms import Kept, Level
from bisect_train.store.contract import StoredEvent
from bisect_train.store.nightly_contract import StoredWatch

SCHEMA = 1


def watch_to_json(watch: StoredWatch, state: WatchState) -> dict[str, Any]:
    """Return where a watch stands: last good commit, open findings, its newest night."""
    night = state.night
    return {
        "schema": SCHEMA,
        "watch": watch.name,
        "repo": watch.about.get("root", ""),
        "branch": watch.about.get("branch", ""),
        "last_good": state.goods[-1] if state.goods else None,
        "num_nights": len(state.nights),
        "newest": night_to_json(night) if night else None,
        "unfinished": state.asking.bisection if state.asking else None,
        "expected": [{"commit": commit, "reason": reason} for commit, reason in state.expected.items()],
        "open": [finding_to_json(kept) for kept in state.findings.values() if kept.finding.state not in OVER],
        "over": [finding_to_json(kept) for kept in state.findings.values() if kept.finding.state in OVER],
    }


def history_to_json(watch: StoredWatch, state: WatchState) -> dict[str, Any]:
    """Return the nights of a watch, the oldest first, with what was found."""
    return {**watch_to_json(watch, state), "nights": [night_to_json(night) for night in state.nights]}


def night_to_json(night: Night) -> dict[str, Any]:
    """Return a night; `exit_status` is None while it has not ended."""
    return {
        "night": night.number,
        "begun_s": night.begun_s,
        "commit": night.commit,
        "pinned": night.pinned or None,
        "exit_status": night.exit_status,
        "summary": night.summary,
        "level": level_to_json(night.level) if night.level else None,
        "comparisons": [
            {
                "role": seen.comparison.role.value,
                "good": seen.comparison.good,
                "bad": seen.comparison.bad,
                "meant": list(seen.comparison.meant),
                "bisection": seen.bisection,
                "standing": seen.standing.value,
                "is_intended": seen.is_intended,
                "bound": seen.bound,
                "summary": seen.summary,
            }
            for seen in night.seen
        ],
        "findings": [{"id": name, "state": state.value} for name, state in night.findings],
    }


def level_to_json(level: Level) -> dict[str, Any]:
    """Return the metric of a night: mean, standard deviation over seeds (None for one), their number, unit."""
    values = list(level.values.values())
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return {
        "metric": level.metric,
        "unit": level.unit,
        "mean": mean,
        "sd": math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else None,
        "num": len(values),
        "better": "lower" if level.sign > 0 else "higher",
        "scale": level.scale,
    }


def finding_to_json(kept: Kept) -> dict[str, Any]:
    """Return a finding without its report, which the bisection has."""
    data = kept.finding.to_json()
    return {**{name: value for name, value in data.items() if name != "report"}, "night": kept.night}


def told_to_json(events: Sequence[StoredEvent]) -> list[dict[str, Any]]:
    """Return who was told what, when: key of the telling, place, seconds since the epoch."""
    names = {event.data["to"]: event.data["name"] for event in events if event.kind == "channel"}
    return [
        {"key": event.data["key"], "place": names.get(event.data["to"], ""), "how": event.data["receipt"].get("how", "")}
        | {"time_s": event.time_s}
        for event in events
        if event.kind == "told"
    ]
