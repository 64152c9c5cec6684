"""A stored baseline stands for the runs of the good end, on its own platform only, and until a fresh run contradicts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.coordinator.golden import GOLDEN_STALE, golden_for, golden_observations, is_stale
from bisect_train.coordinator.observing import load_state, observe
from bisect_train.core.changes import Point
from bisect_train.core.golden import Golden, GoldenRun
from bisect_train.core.probe import RECORDER_VERSION, MachineFacts
from bisect_train.core.question import Question
from bisect_train.search.terms import Request
from bisect_train.store.contract import PROBE_FINISHED, Store
from bisect_train.store.memory import MemoryStore
from bisect_train.verdict.outcome import Observation, Outcome, OutcomeKind
from bisect_train_workers.simulated import SIMULATED_FACTS
from tests.support.simulated_bisection import Lab, assert_isolated, drive, essence_of, fingerprint_of, store_at

SEEDS = range(5)


def saved_from(lab: Lab, question: Question, *, level: float = 1.0, **more: object) -> Golden:
    """Return the baseline that runs of the good end at this level would have given."""
    space = lab.space(question)
    runs = []
    for seed in SEEDS:
        seen = observe(Request(Point(0), seed), fingerprint_of(level, seed_idx=seed), question).outcome
        assert seen.value is not None
        runs.append(GoldenRun(seed, seen.value, seen.digest))
    golden = Golden(
        "main",
        space.variant(Point(0)).id,
        question.rung.name,
        question.settings.measure_digest,
        SIMULATED_FACTS.hardware_class,
        SIMULATED_FACTS.interpreter,
        RECORDER_VERSION,
        True,
        tuple(runs),
    )
    return replace(golden, **more)


def asked_with(lab: Lab, change: Callable[[Golden], Golden] = lambda golden: golden, *, level: float = 1.0) -> Question:
    question = lab.question()
    golden = change(saved_from(lab, question, level=level))
    return replace(question, golden=golden_for(question, lab.space(question), [golden]))


def good_runs(store: Store, name: str) -> list[tuple[int, int]]:
    """Return (seed, repeat) of the runs of the good end outside any proof."""
    specs = [event.data["spec"] for event in store.events(name) if event.kind == PROBE_FINISHED]
    return sorted((spec["seed_idx"], spec["repeat"]) for spec in specs if spec["point"] == "0" and spec["attempt"] == 0)


def test_the_good_end_is_run_once_more_to_see_that_the_baseline_holds_and_no_further(tmp_path: Path) -> None:
    lab, store = Lab.build(tmp_path), MemoryStore()
    name, ended = drive(lab, store, question=asked_with(lab))
    assert_isolated(lab, ended)
    assert good_runs(store, name) == [(0, 1)]
    assert not any(event.kind == GOLDEN_STALE for event in store.events(name))


def test_a_fresh_run_that_shows_something_else_ends_the_baselines_say(tmp_path: Path) -> None:
    lab, store = Lab.build(tmp_path), MemoryStore()
    question = asked_with(lab, level=0.5)  # saved where the same version trained to something else
    name, ended = drive(lab, store, question=question)
    assert_isolated(lab, ended)
    assert any(event.kind == GOLDEN_STALE for event in store.events(name))
    assert (0, 0) in good_runs(store, name)
    assert ended.plan.ends.good is not None and ended.plan.ends.good.mean == pytest.approx(1.0, abs=0.5)
    state = load_state(store, name, question)
    assert state.plan(question, lab.space(question)).answer == ended.answer


@pytest.mark.parametrize(
    "change",
    [
        lambda golden: replace(golden, hardware_class="another"),
        lambda golden: replace(golden, interpreter="another"),
        lambda golden: replace(golden, recorder="0"),
        lambda golden: replace(golden, rung="7 steps x 1 rank"),
        lambda golden: replace(golden, variant="another"),
        lambda golden: replace(golden, measure="another"),
    ],
)
def test_on_another_platform_or_for_another_run_a_baseline_says_nothing(
    tmp_path: Path, change: Callable[[Golden], Golden]
) -> None:
    lab = Lab.build(tmp_path, num_commits=4, culprit=2)
    assert golden_observations(asked_with(lab, change), SIMULATED_FACTS) == []
    assert golden_observations(asked_with(lab), MachineFacts("", "", 1)) == []
    assert len(golden_observations(asked_with(lab), SIMULATED_FACTS)) == len(SEEDS)


def test_resume_takes_the_same_golden_values(tmp_path: Path) -> None:
    lab, store = Lab.build(tmp_path), MemoryStore()
    question = asked_with(lab)
    name, ended = drive(lab, store, question=question)
    assert Question.of_json(question.to_json()) == question
    state = load_state(store, name, question)
    assert state.plan(question, lab.space(question)).answer == ended.answer


def seen(value: float, *, seed: int = 0, repeat: int = 1, digest: str = "x", attempt: int = 0, point: int = 0) -> Observation:
    return Observation(Point(point), seed, repeat, attempt, -1, Outcome(OutcomeKind.MEASURED, value=value, digest=digest))


def test_bits_are_compared_where_they_repeat_and_values_where_they_do_not() -> None:
    golden = [seen(1.0 + idx / 10, seed=idx, repeat=0, digest=f"d{idx}") for idx in range(5)]
    assert not is_stale(golden, seen(1.0, digest="d0"), repeats=True)
    assert is_stale(golden, seen(1.0, digest="other"), repeats=True)
    assert not is_stale(golden, seen(1.3, digest="other"), repeats=False)
    assert is_stale(golden, seen(9.0, digest="d0"), repeats=False)
    for other in (seen(9.0, point=1), seen(9.0, attempt=1)):
        assert not is_stale(golden, other, repeats=True) and not is_stale(golden, other, repeats=False)
    failed = Observation(Point(0), 0, 1, 0, -1, Outcome(OutcomeKind.FAILED, signature="boom"))
    assert is_stale(golden, failed, repeats=True)


def test_a_contradiction_counts_though_the_coordinator_died_before_it_could_note_it(tmp_path: Path) -> None:
    lab, store = Lab.build(tmp_path), MemoryStore()
    question = asked_with(lab, level=0.5)
    name, ended = drive(lab, store, question=question)
    num = next(at for at, event in enumerate(store.events(name)) if event.kind == GOLDEN_STALE)
    copy = store_at(store, name, num)
    _, again = drive(lab, copy, question=question, bisection_id=name)
    assert essence_of(again) == essence_of(ended)
    assert again.plan.ends.good is not None and again.plan.ends.good.mean == ended.plan.ends.good.mean  # type: ignore[union-attr]


def test_equal_bits_with_another_value_are_another_way_of_reducing_them() -> None:
    golden = [seen(3.0, repeat=0, digest="d")]
    assert is_stale(golden, seen(2.0, digest="d"), repeats=True)
