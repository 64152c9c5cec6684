"""What the pages show, as values: the strip, probes in flight, the list, nights, probes and pairs of them."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from bisect_train.core.changes import make_point
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.verdict import VerdictKind
from bisect_train.service.pages.contract import RunInFlight
from bisect_train.service.pages.flight_view import Names, flight_to_json, list_flight, unfinished_runs
from bisect_train.service.pages.list_view import in_order
from bisect_train.service.pages.nightly_view import NUM_NIGHTS, make_branch
from bisect_train.service.pages.probe_page_view import hide_secrets, make_compare_page, make_probe_page
from bisect_train.service.pages.strip_view import MAX_ROWS, Strip, make_strip, version_of
from bisect_train.service.pages.words import say_cost
from bisect_train.store.contract import StoredBisection, StoredEvent
from tests.support.page_samples import made_up_nights
from tests.support.report_cases import (
    CULPRIT,
    FakeSpace,
    Solved,
    commit_space,
    make_commits,
    make_failure,
    make_fingerprint,
    play,
    step_change,
)


@pytest.fixture(scope="module")
def solved() -> Solved:
    return play(step_change(CULPRIT), commit_space())


def _strip(solved: Solved, marks: dict[int, VerdictKind] | None = None) -> Strip:
    return make_strip(solved.space.changes, solved.plan, solved.report(), marks or {})


# ---- the strip -----------------------------------------------------------------------------------------------------


def test_strip_of_an_answer_names_the_culprit_and_what_its_versions_showed(solved: Solved) -> None:
    strip = _strip(solved)
    named = [cell for cell in strip.cells if cell.is_culprit]
    assert [cell.number for cell in named] == [CULPRIT + 1]
    assert (named[0].verdict, strip.cells[CULPRIT - 1].verdict) == ("bad", "good")
    assert strip.cells[-1].verdict == "bad"
    assert strip.said == f"24 changes between the ends; change {CULPRIT + 1} is proved."
    assert "use the fast path" in named[0].name


def test_strip_before_the_search_rules_nothing_out() -> None:
    solved = play(step_change(CULPRIT), commit_space(), max_probes=2)
    strip = _strip(solved)
    assert all(cell.is_left and cell.probability is None and cell.belief == "" for cell in strip.cells)
    assert strip.said == "24 changes between the ends; none is ruled out yet."


def test_strip_narrows_while_the_search_goes_on() -> None:
    widths = []
    for num in (9, 10, 11, 12, 13):
        strip = _strip(play(step_change(CULPRIT), commit_space(), max_probes=num))
        left = [cell.number for cell in strip.cells if cell.is_left]
        assert CULPRIT + 1 in left
        widths.append(len(left))
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < widths[0] <= 24


def test_mark_of_a_person_stands_in_the_strip(solved: Solved) -> None:
    cell = _strip(solved, {3: VerdictKind.UNTESTABLE}).cells[2]
    assert (cell.verdict, cell.said) == ("untestable", "called untestable by hand")


def test_table_of_a_long_strip_has_the_culprit_and_a_bounded_number_of_rows() -> None:
    solved = play(step_change(700), FakeSpace(make_commits(1000)))
    strip = _strip(solved)
    assert len(strip.cells) == 1000
    assert len(strip.rows) <= MAX_ROWS
    assert 701 in [cell.number for cell in strip.rows]
    assert len(json.dumps(strip.to_json())) < 150_000


def test_only_prefixes_are_versions() -> None:
    assert [version_of(text) for text in ("12", "0", "good", "12+14", "20-3", "x")] == [12, 0, None, None, None, None]


# ---- probes in flight ----------------------------------------------------------------------------------------------


def _events(*told: tuple[str, dict[str, object]]) -> list[StoredEvent]:
    return [StoredEvent(seq, kind, 0.0, data) for seq, (kind, data) in enumerate(told, start=1)]


def test_runs_are_in_flight_until_they_end_are_lost_or_cancelled() -> None:
    started = [("probe_started", {"key": key, "point": "3"}) for key in "abcde"]
    events = _events(
        *started,
        ("probe_finished", {"key": "a", "spec": {}}),
        ("probe_finished", {"key": "b2", "spec": {"begun_as": "b"}}),
        ("probe_lost", {"key": "c"}),
        ("probe_cancelled", {"key": "d"}),
    )
    assert [run.key for run in unfinished_runs(events)] == ["e"]
    assert unfinished_runs([*events, *_events(("interrupted", {}))]) == ()


def test_flight_has_words_and_curves() -> None:
    space = commit_space()
    names = Names(space.changes, True)
    runs = [
        RunInFlight("a", "13", 2, 0, "run", (1, 2, 3), (3.0, math.nan, 2.0)),
        RunInFlight("b", make_point(0, plus=(CULPRIT,)).to_text(), phase="checkout"),
        RunInFlight("c", "no point at all"),
    ]
    rows = list_flight(runs, names)
    assert rows[0].what.startswith("version 13 of 24: ")
    assert [(row.seed, row.phase, row.loss) for row in rows] == [("2", "step 3", "2"), ("", "checkout", ""), ("", "runs", "")]
    assert rows[1].what.startswith("good end with ")
    data = flight_to_json(runs, names)
    assert [item["y"] for item in data["figure"]["traces"]] == [[3.0, None, 2.0]]
    json.dumps(data, allow_nan=False)


# ---- list, nights, costs -------------------------------------------------------------------------------------------


def _stored(name: str, part_of: str = "") -> StoredBisection:
    return StoredBisection(name, 0.0, {"kind": "run", "part_of": part_of}, name, "created", None)


def test_parts_stand_below_what_they_look_into() -> None:
    every = [
        _stored("inner", "middle"),
        _stored("middle", "whole"),
        _stored("other"),
        _stored("whole"),
        _stored("lost", "gone"),
    ]
    assert [item.id for item in in_order(every)] == ["other", "whole", "middle", "inner", "lost"]


def test_costs_in_words() -> None:
    assert say_cost({"probes": 1, "wall_s": 5.0, "gpu_s": 7200.0}) == "1 probe, 5.0 s, 2 GPU-hours"
    assert say_cost({}) == ""


def test_nights_are_marked_by_state_and_the_newest_comes_first() -> None:
    view = make_branch(made_up_nights(), 0)
    assert view.rows[0].state == "drift"
    assert view.figure is not None
    states = {item["state"] for item in view.figure.data["nights"]}
    assert states == {"clean", "regression", "fixed", "intended", "drift"}, "a night without a value is in the table only"
    assert any(row.state == "cannot be tested" and row.value == "-" for row in view.rows)
    assert "5 nights" not in view.figure.alt
    assert "6 nights with a finding" in view.figure.alt


def test_many_nights_are_cut_and_counted() -> None:
    view = make_branch(made_up_nights(NUM_NIGHTS + 40), 0)
    assert (len(view.rows), view.num_left_out) == (NUM_NIGHTS, 40)


def test_branch_without_two_values_has_no_figure() -> None:
    branch = made_up_nights(1)
    assert make_branch(branch, 0).figure is None
    assert make_branch(replace(branch, nights=()), 0).rows == ()


# ---- probes --------------------------------------------------------------------------------------------------------


def test_probe_page_says_how_it_ended_and_shows_its_curves(solved: Solved) -> None:
    page = make_probe_page(solved.probes[0])
    assert page.is_healthy
    assert [figure.id for figure in page.figures] == ["losses", "norms"]
    assert len(page.steps) == 40
    assert dict(page.facts)["Rung"] == "40 steps x 1 rank"


def test_probe_page_of_a_crash_has_its_log_without_secrets(solved: Solved) -> None:
    failed = make_failure("RuntimeError: boom")
    log = f"{failed.log_tail}WANDB_API_KEY=0123456789abcdef\n"
    page = make_probe_page(replace(solved.probes[0], result=replace(failed, log_tail=log)))
    assert not page.is_healthy
    assert "RuntimeError: boom" in page.ending
    assert "0123456789abcdef" not in page.log
    assert "Traceback" in page.log
    assert hide_secrets("loss: 3") == "loss: 3"


def test_compare_page_says_where_two_runs_part() -> None:
    left, right = make_fingerprint(3.0, seed=1), make_fingerprint(3.4, seed=1, salt="bad", from_step=5)
    page = make_compare_page(left, right, names=("good end", "bad end"))
    assert page.said.startswith("On the same seed, A (good end) and B (bad end) first differ at step")
    assert page.first is not None
    assert str(page.first) in [cells[0] for cells in page.steps]
    assert page.figure is not None
    assert [item["name"] for item in page.figure.data["traces"]] == ["A: good end", "B: bad end"]


def test_compare_page_of_other_seeds_does_not_claim_the_same() -> None:
    page = make_compare_page(make_fingerprint(3.0, seed=1), make_fingerprint(3.0, seed=2), names=("a", "b"), is_same_seed=False)
    assert "On the same seed" not in page.said
    assert "Their seeds differ" in page.said


def test_table_of_a_long_pair_lies_around_the_first_difference() -> None:
    left = make_fingerprint(3.0, seed=1, num_steps=2000)
    right = _changed_from(left, 1500)
    page = make_compare_page(left, right, names=("a", "b"))
    assert page.first == 1500
    assert "1500" in [cells[0] for cells in page.steps]
    assert page.num_steps_left_out == 1900


def _changed_from(fingerprint: Fingerprint, first: int) -> Fingerprint:
    rank = fingerprint.ranks[0]
    steps = tuple(replace(step, loss=(step.loss or 0.0) + 1.0, micro=()) if step.step >= first else step for step in rank.steps)
    return replace(fingerprint, ranks=(replace(rank, steps=steps),))
