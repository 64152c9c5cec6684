"""The live view: plain lines in a pipe, a picture on a terminal, nothing when quiet, and never an exception."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from typing import cast

import pytest
from rich.console import Console

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.events import CoordinatorEvent, PlanMade, ProbeDone, ProbeGone, ProbeMoved, ProbeStarted
from bisect_train.coordinator.observing import observe, request_of_spec, rules_for
from bisect_train.core.changes import Point
from bisect_train.core.executor import ProbeProgress
from bisect_train.core.question import Metric
from bisect_train.report import LiveView
from bisect_train.report.live_state import LiveState, draw_state, draw_strip
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Known, Request
from bisect_train.verdict.outcome import Observation
from tests.support.report_cases import FakeSpace, Solved, config_space, make_commits, make_question, play, step_change


@pytest.fixture(scope="module")
def solved() -> Solved:
    return play(step_change(13), FakeSpace(make_commits(24, titles={13: "[red]fast path[/red]"})))


def events_of(solved: Solved) -> Iterator[CoordinatorEvent]:
    """Return what a coordinator would have told."""
    rules = rules_for(solved.question, cast(ChangeSpace, solved.space))
    seen: list[Observation] = []
    for idx, probe in enumerate(solved.probes):
        yield PlanMade(make_plan(rules, Known(seen, {}, (), 2)), idx, 1, 2)
        request = request_of_spec(probe.spec)
        yield ProbeStarted(probe.key, request)
        yield ProbeMoved(ProbeProgress(probe.key, "run", 17, 3.25))
        observation = observe(request, probe.result.fingerprint, solved.question)
        seen.append(observation)
        yield ProbeDone(probe.key, observation, probe.result, idx == 0)
    yield PlanMade(solved.plan, len(solved.probes), 1, 2)


def watch(solved: Solved, *, quiet: bool = False, is_terminal: bool = False, extra: tuple[CoordinatorEvent, ...] = ()) -> str:
    console = Console(file=StringIO(), width=100, force_terminal=is_terminal, color_system=None)
    with LiveView(console, cast(ChangeSpace, solved.space), solved.question, quiet, clock=lambda: 0.0) as view:
        for event in (*events_of(solved), *extra):
            view(event)
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def test_live_in_a_pipe_prints_a_line_per_probe_and_phase(solved: Solved) -> None:
    lines = watch(solved).splitlines()
    assert lines[0] == "comparing the good end and the bad end"
    assert lines[1] == "  good end  seed 0  loss 3.0228  40 steps  reused"
    assert lines[2] == "  bad end  seed 0  loss 3.4228  40 steps  4.2 s"
    assert any(line.startswith("searching the change among 24 changes: 3 + 3 seeds lie") for line in lines)
    assert any(line.startswith("proving the answer with fresh runs: commit ") for line in lines)
    probes = [line for line in lines if line.startswith("  ") and "seed" in line]
    assert len(probes) == len(solved.probes)
    assert "\x1b" not in "".join(lines)


def test_live_in_a_pipe_says_verdicts_and_what_is_left(solved: Solved) -> None:
    text = watch(solved)
    assert "  bad  40 steps" in text and "  good  40 steps" in text
    assert " changes left: " in text
    assert "[red]fast path[/red]" in text  # markup in a subject is text


def test_live_quiet_prints_nothing(solved: Solved) -> None:
    assert watch(solved, quiet=True) == "" and watch(solved, quiet=True, is_terminal=True) == ""


def test_live_says_lost_probes_but_not_obsolete_ones(solved: Solved) -> None:
    request = Request(Point(3), 0)
    reasons = (("k", "the node died"), ("k", "obsolete"), ("", "a conflict"))
    extra = tuple(ProbeGone(key, request, reason) for key, reason in reasons)
    text = watch(solved, extra=extra)
    assert "lost: the node died" in text and "obsolete" not in text and "cannot be built: a conflict" in text


def test_live_says_why_a_run_shows_no_value() -> None:
    question = make_question(metric=Metric("val_loss"))
    text = watch(play(step_change(2), FakeSpace(make_commits(4)), question))
    assert "  good end  seed 0  no value of val_loss  40 steps" in text


def test_live_never_raises(solved: Solved) -> None:
    console = Console(file=StringIO(), width=100)
    with LiveView(console, cast(ChangeSpace, solved.space), solved.question) as view:
        view(ProbeStarted("k", Request(Point(3, (999,)), 0)))  # there is no change 999
        for event in events_of(solved):
            view(event)


def test_live_on_a_terminal_draws_range_strip_and_probes(solved: Solved) -> None:
    console = Console(file=StringIO(), width=100, force_terminal=True, color_system=None)
    view = LiveView(console, cast(ChangeSpace, solved.space), solved.question, clock=lambda: 0.0)
    with view:
        for event in events_of(solved):
            if isinstance(event, ProbeDone) and len(view._state.finished) > 8:
                break
            view(event)
        view._live.refresh()  # type: ignore[union-attr]
    file = console.file
    assert isinstance(file, StringIO)
    assert "Finished" in file.getvalue()


def test_live_picture_shows_everything(solved: Solved) -> None:
    state = LiveState(solved.space.changes)
    view = LiveView(Console(file=StringIO()), cast(ChangeSpace, solved.space), solved.question)
    view._state = state
    events = list(events_of(solved))
    last_move = max(idx for idx, event in enumerate(events) if isinstance(event, ProbeMoved))
    for event in events[: last_move + 1]:
        view(event)
    console = Console(file=StringIO(), width=80, color_system=None)
    console.print(draw_state(state, elapsed_s=75.0, width=80))
    file = console.file
    assert isinstance(file, StringIO)
    text = file.getvalue()
    assert "Proving the answer with fresh runs" in text and "1 min 15 s" in text
    assert "1 of 24 changes left: commit " in text and "█" in text
    assert "Running" in text and "step 17" in text and "loss 3.25" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("num", "width"), [(1, 10), (24, 76), (1000, 76), (76, 76)])
def test_live_strip_scales_to_width(num: int, width: int) -> None:
    posterior = [0.0] * num
    posterior[num // 2] = 1.0
    strip = draw_strip(posterior, width=width)
    assert len(strip) == min(num, width) and strip.count("█") == 1


@pytest.mark.parametrize(("posterior", "said"), [((0.5, 0.3, 0.2), "none stands out"), ((0.6, 0.3, 0.1), "commit ")])
def test_live_picture_names_a_most_probable_change_only_if_one_stands_out(
    solved: Solved, posterior: tuple[float, ...], said: str
) -> None:
    changes = tuple(solved.space.changes[:3])
    state = LiveState(changes, plan=replace(solved.plan, posterior=posterior))
    console = Console(file=StringIO(), width=120, color_system=None)
    console.print(draw_state(state, elapsed_s=1.0, width=120))
    file = console.file
    assert isinstance(file, StringIO)
    assert f"most probable: {said}" in file.getvalue()


def test_live_picture_names_config_keys_once() -> None:
    configs, question = config_space()
    state = LiveState(configs.changes)
    assert state.say_range() == "optim.key0: 0 -> 1 .. optim.key2: 2 -> 3"
    assert "optim.key0 optim.key0" not in watch(play(step_change(1), configs, question))


def test_live_strip_shows_small_beliefs_and_hides_none() -> None:
    assert draw_strip([0.5, 0.02, 0.001, 0.0], width=10) == "█▁  "
    assert draw_strip([], width=10) == ""
    assert draw_strip([1.0, 0.0], width=5, is_ascii=True) == "% "
