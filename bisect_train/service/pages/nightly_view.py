"""The nights of a watched branch as a picture and a table: the metric over commits, findings marked by shape and word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bisect_train.report.words import say_count, say_number, say_spread
from bisect_train.service.pages.clean import one_line
from bisect_train.service.pages.contract import Night, WatchedBranch
from bisect_train.service.pages.figures import Figure, finite, label
from bisect_train.service.pages.words import NIGHT_WORDS, iso_time, say_time

NUM_NIGHTS = 120


@dataclass(frozen=True, slots=True)
class NightRow:
    """One night as text; `look` is its state, a class of the style sheet."""

    commit: str
    subject: str
    when: str
    when_iso: str
    value: str
    state: str
    look: str
    said: str
    bisection_id: str


@dataclass(frozen=True, slots=True)
class BranchView:
    """One watched branch: its newest nights first, and its figure where there are two values or more."""

    branch: WatchedBranch
    anchor: str
    rows: tuple[NightRow, ...]
    figure: Figure | None
    num_left_out: int


def make_branch(branch: WatchedBranch, idx: int) -> BranchView:
    """Return the view of the newest nights of a branch; `idx` numbers it on its page."""
    nights = branch.nights[-NUM_NIGHTS:]
    rows = tuple(_row(night, branch) for night in reversed(nights))
    return BranchView(branch, f"branch-{idx}", rows, _figure(branch, nights, idx), len(branch.nights) - len(nights))


def _row(night: Night, branch: WatchedBranch) -> NightRow:
    value = say_spread(night.mean, night.sd, night.num, unit=branch.unit) if night.num else "-"
    return NightRow(
        commit=night.commit[:8],
        subject=night.subject,
        when=say_time(night.time_s),
        when_iso=iso_time(night.time_s),
        value=value,
        state=NIGHT_WORDS.get(night.state, night.state),
        look=night.state,
        said=night.said,
        bisection_id=night.bisection_id,
    )


def _figure(branch: WatchedBranch, nights: tuple[Night, ...], idx: int) -> Figure | None:
    measured = [night for night in nights if finite(night.mean) is not None]
    if len(measured) < 2:
        return None
    unit = f", {branch.unit}" if branch.unit else ""
    found = [night for night in nights if night.state != "clean"]
    values = [night.mean for night in measured if night.mean is not None]
    alt = (
        f"{one_line(branch.metric)} over {say_count(len(nights), 'night')}: from {say_number(values[0])} to "
        f"{say_number(values[-1])}, {say_count(len(found), 'night')} with a finding; the table below has them all"
    )
    data: dict[str, Any] = {
        "kind": "nights",
        "x": "night, oldest first",
        "y": label(f"{branch.metric}{unit}"),
        "nights": [_point(night, place) for place, night in enumerate(nights, start=1) if finite(night.mean) is not None],
        "words": NIGHT_WORDS,
    }
    return Figure(f"nights-{idx}", f"{branch.metric} on {branch.branch}", alt, data, 300)


def _point(night: Night, place: int) -> dict[str, Any]:
    said = f"night {place}, {night.commit[:8]} {night.subject}"
    return {
        "n": place,
        "y": finite(night.mean),
        "sd": finite(night.sd),
        "state": night.state,
        "name": label(said),
        "commit": night.commit[:7],
    }
