"""The live view: plain lines in a pipe, a picture on a terminal, nothing when quiet, and never an exception."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from typing import cast

import pytest
from rich.console import Console

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.contradiction import Contradiction
from bisect_train.coordinator.events import (
    CoordinatorEvent,
    MarkContradicted,
    PlanMade,
    ProbeDone,
    ProbeGone,
    ProbeMoved,
    ProbeStarted,
)
from bisect_train.coordinator.observing import observe, request_of_spec, rules_for
from bisect_train.core.changes import Point
from bisect_train.core.executor import ProbeProgress
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeResult, Rung
from bisect_train.core.question import Metric
from bisect_train.core.verdict import Criterion, VerdictKind
from bisect_train.report import LiveView, live_rest, live_state, standing
from bisect_train.report.live import LimitHint
from bisect_train.report.live_state import LiveState, draw_state, draw_strip
from bisect_train.report.standing import render_standing
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Known, Phase, Request
from bisect_train.verdict.outcome import Observation
from tests.support.report_cases import (
    FakeSpace,
    Solved,
    config_space,
    make_commits,
    make_fingerprint,
    make_question,
    play,
    step_change,
    unlucky,
)


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
    is_proof = [isinstance(event, PlanMade) and event.plan.phase is Phase.PROOF for event in events]
    last_plan = max(idx for idx, is_it in enumerate(is_proof) if is_it)
    for event in events[: last_plan + 3]:  # a probe is started, and moves
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


# ---- after the first answer ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_culprits() -> Solved:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        level = 3.0 + 0.4 * point.holds(6) + 0.2 * point.holds(15)
        return make_fingerprint(level, seed=seed, salt=point.to_text())

    return play(behave, FakeSpace(make_commits(20)), max_probes=1500)


def test_live_goes_on_after_the_first_answer_and_says_which_part_is_searched_and_why(two_culprits: Solved) -> None:
    lines = watch(two_culprits).splitlines()
    probes = [line for line in lines if line.startswith("  ") and " seed " in line]
    assert len(probes) == len(two_culprits.probes), "a line for each, those of parts too"
    assert any(line.startswith("looking at parts of the range by themselves: ") for line in lines)
    first, last = (make_commits(20)[idx].id[:8] for idx in (0, 19))
    parts = [line for line in lines if line.startswith("  in ") and " changes from " in line]
    assert any(first in line for line in parts) and any(last in line for line in parts)
    assert all("(what lies between the ends is on a level of its own): " in line for line in parts)
    proofs = [line for line in parts if "proving its answer with fresh runs: commit " in line]
    assert {line.rsplit("commit ", 1)[1][:8] for line in proofs} == {make_commits(20)[idx].id[:8] for idx in (6, 15)}
    assert len(parts) == len(set(parts)), "each is told once"
    assert "  testing with fresh runs whether what was proved in a part matters in the whole range, too" in lines


def test_live_judges_runs_of_a_part_by_the_ends_of_the_part(two_culprits: Solved) -> None:
    """Versions 12 to 15 are good in the second part; by the ends of the whole range they are unlike both."""
    lines = watch(two_culprits).splitlines()
    begun = next(idx for idx, line in enumerate(lines) if line.endswith(": searching the change"))
    between = tuple(f"  version {number} of 20" for number in range(12, 16))
    assert any("  good  40 steps" in line for line in lines[begun:] if line.startswith(between))


def test_live_says_how_much_worse_it_becomes_in_the_part_that_a_culprit_leaves_open() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        level = 3.0 + 0.6 * point.holds(6) + 0.2 * point.holds(15)
        return make_fingerprint(level, seed=seed, salt=point.to_text(), noise=0.08)

    lines = watch(play(behave, FakeSpace(make_commits(20)), max_probes=1500)).splitlines()
    culprit = make_commits(20)[6].id[:8]
    opened = next(line for line in lines if line.startswith("looking at the rest of the range: "))
    assert opened.startswith(f"looking at the rest of the range: commit {culprit} ") and opened.endswith(
        "is proved; is it all?"
    )
    assert any("(it becomes worse by 0.19" in line and " there, too): comparing its two ends" in line for line in lines)


def test_status_and_picture_tell_the_parts(two_culprits: Solved) -> None:
    rules = rules_for(two_culprits.question, cast(ChangeSpace, two_culprits.space))
    runs = [observe(request_of_spec(p.spec), p.result.fingerprint, two_culprits.question) for p in two_culprits.probes]
    plans = (make_plan(rules, Known(runs[:num], {}, (), 2)) for num in range(len(runs)))
    plan = next(plan for plan in plans if plan.phase is Phase.REST)
    said = render_standing(plan, cast(ChangeSpace, two_culprits.space), num_probes=64)
    assert "phase     looking at the rest of the range\n          in " in said
    console = Console(file=StringIO(), width=150, color_system=None)
    console.print(draw_state(LiveState(two_culprits.space.changes, plan=plan), elapsed_s=1.0, width=150))
    file = console.file
    assert isinstance(file, StringIO)
    assert "Looking at parts of the range" in file.getvalue() and "comparing its two ends" in file.getvalue()


def test_every_phase_has_words_for_the_live_view_and_the_status() -> None:
    assert set(live_state.PHASE_WORDS) == set(standing.PHASES) == set(live_rest.PART_WORDS) == set(Phase)


# ---- failures that come and go, and marks that are wrong -------------------------------------------------------------


def test_live_says_what_happened_where_failures_come_and_go() -> None:
    question = make_question(criterion=Criterion.SYMPTOM)
    lines = watch(play(unlucky(9, rate=0.6), FakeSpace(make_commits(20)), question, max_probes=1500)).splitlines()
    searched = [line for line in lines if line.startswith("  version ")]
    assert searched and all("  failed, " in line or "  passed, " in line for line in searched)
    assert not any("inconclusive" in line for line in lines)
    of_one = [line for line in searched if line.startswith(searched[0].split(":")[0])]
    rates = [line.split("ed, ")[1].split(" fail")[0] for line in of_one]
    assert [int(rate.split(" of ")[1]) for rate in rates] == list(range(1, len(rates) + 1))
    num_failed = [int(rate.split(" of ")[0]) for rate in rates]
    expected = [sum("  failed, " in line for line in of_one[: idx + 1]) for idx in range(len(of_one))]
    assert num_failed == expected


def test_live_counts_what_was_observed_before_a_resume() -> None:
    solved = play(
        unlucky(9, rate=0.6), FakeSpace(make_commits(20)), make_question(criterion=Criterion.SYMPTOM), max_probes=1500
    )
    at = next(idx for idx, probe in enumerate(solved.probes) if 0 < request_of_spec(probe.spec).point.prefix < 20)
    point = request_of_spec(solved.probes[at].spec).point
    runs = [observe(request_of_spec(p.spec), p.result.fingerprint, solved.question) for p in solved.probes]
    again = next(idx for idx in range(at + 1, len(runs)) if runs[idx].point == point)
    console = Console(file=StringIO(), width=100)
    earlier = runs[:again]
    with LiveView(console, cast(ChangeSpace, solved.space), solved.question, earlier=earlier) as view:
        view(PlanMade(solved.plan, again, 0, 2))
        view(ProbeDone("k", runs[again], solved.probes[again].result, False))
    file = console.file
    assert isinstance(file, StringIO)
    assert " of 2 fail" in file.getvalue()


@pytest.mark.parametrize(("num_runs", "said"), [(1, "its run says bad"), (3, "its 3 runs say bad")])
@pytest.mark.parametrize("is_terminal", [False, True])
def test_live_warns_of_a_mark_that_runs_contradict(solved: Solved, num_runs: int, said: str, is_terminal: bool) -> None:
    event = MarkContradicted(Contradiction(5, VerdictKind.GOOD, VerdictKind.BAD, num_runs))
    text = watch(solved, extra=(event,), is_terminal=is_terminal)
    assert f"warning: {solved.space.changes[4].id[:8]} was marked good; {said}" in text


@pytest.mark.parametrize(
    ("limit_s", "runs", "said"),
    [
        (600.0, [("ok", 5.3), ("hang", 600.0)], "--timeout 30`"),
        (600.0, [("hang", 600.0), ("ok", 21.0)], "--timeout 110`"),
        (600.0, [("ok", 5.0), ("ok", 70.0), ("hang", 600.0)], ""),  # five times the longest is more than half of the limit
        (60.0, [("ok", 5.0), ("hang", 60.0), ("hang", 60.0)], "--timeout 30`"),
        (50.0, [("ok", 5.0), ("hang", 50.0)], ""),
        (600.0, [("ok", 5.0), ("slow", 600.0)], ""),
        (600.0, [("hang", 600.0), ("hang", 600.0)], ""),
    ],
    ids=["first look", "the bad end first", "long runs", "once", "short already", "slow is no hang", "nothing ends well"],
)
def test_live_says_once_that_a_shorter_limit_would_do_for_hangs(
    limit_s: float, runs: list[tuple[str, float]], said: str
) -> None:
    endings = {
        "ok": Ending(EndingKind.STOPPED),
        "hang": Ending(EndingKind.TIMEOUT, "timeout: hang"),
        "slow": Ending(EndingKind.TIMEOUT, "timeout: slow"),
    }
    question = make_question()
    question = replace(question, settings=replace(question.settings, timeout_s=limit_s))
    hint, of_small_rung = (LimitHint(replace(question, ladder=ladder)) for ladder in ((), (question.rung, Rung("l", 500))))
    results = [ProbeResult("k", Fingerprint(endings[kind]), wall_s=wall_s) for kind, wall_s in runs]
    assert not any(map(of_small_rung.take, results)), "runs of the next rung take longer"
    told = [hint.take(result) for result in results]
    assert [said in text for text in told if text] == ([True] if said else [])
