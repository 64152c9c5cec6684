"""Time, memory, restarts, derived numbers, and the table of symptoms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bisect_train.core.fingerprint import Event, RankRecord
from bisect_train.core.probe import ProbeResult
from bisect_train.core.question import Metric
from bisect_train.report.triage_view import triage_run
from bisect_train.verdict.divergence import Stage
from bisect_train.verdict.outcome import OutcomeKind, judge_outcome, why_unseen
from bisect_train.verdict.triage import (
    BASELINE_SYMPTOMS,
    DERIVED_METRICS,
    SYMPTOMS,
    WIDER_SYMPTOMS,
    Asked,
    Category,
    derived_metric,
    unsaved_step,
)
from tests.support.triage_records import finding_of, make_run, sample_text, seeds, told


@pytest.mark.parametrize(("step_s", "is_told"), [(0.2, True), (0.14, False)])
def test_slower_is_by_median_and_by_fastest_step(step_s: float, is_told: bool) -> None:
    run = make_run(change=lambda *_: {"step_s": step_s})
    assert (told(run, baseline=make_run(), replicates=seeds()) == ["slower"]) is is_told


@pytest.mark.parametrize(("step_s", "is_told"), [(1.1, True), (0.9, False)])
def test_slower_than_a_lone_healthy_run_takes_ten_times(step_s: float, is_told: bool) -> None:
    """On busy machines a pair of runs of the same code was eight times apart."""
    assert (told(make_run(change=lambda *_: {"step_s": step_s}), baseline=make_run()) == ["slower"]) is is_told


def test_slower_leaves_a_busy_machine_the_first_step_and_the_recorder_out() -> None:
    busy = make_run(change=lambda _, step: {"step_s": 0.1 if step % 7 == 3 else 0.3})
    assert told(busy, baseline=make_run()) == []  # its fastest steps are as fast
    assert told(make_run(change=lambda _, step: {"step_s": 60.0} if step == 0 else {}), baseline=make_run()) == []
    own = make_run(change=lambda *_: {"step_s": 0.3, "self_s": 0.2})
    assert told(own, baseline=make_run()) == []
    slow_seeds = seeds(change=lambda *_: {"step_s": 0.25})
    assert told(make_run(change=lambda *_: {"step_s": 0.2}), baseline=make_run(), replicates=slow_seeds) == []
    assert told(make_run(4, change=lambda *_: {"step_s": 9.0}), baseline=make_run(4)) == []  # too few


@pytest.mark.parametrize(("data_s", "is_told"), [(0.09, True), (0.04, False)])
def test_waits_for_data_by_themselves(data_s: float, is_told: bool) -> None:
    assert (told(make_run(change=lambda *_: {"data_s": data_s, "step_s": 0.1})) == ["data_loading"]) is is_told


def test_waits_for_data_of_a_toy_are_none_and_against_a_baseline_relative() -> None:
    toy = make_run(change=lambda *_: {"data_s": 0.0009, "step_s": 0.001})
    assert told(toy) == []
    waiting = make_run(change=lambda *_: {"data_s": 0.04, "step_s": 0.12})
    assert told(waiting, baseline=make_run(change=lambda *_: {"data_s": 0.002, "step_s": 0.12})) == ["data_loading"]
    assert told(waiting, baseline=waiting) == []
    assert told(make_run(change=lambda *_: {"data_s": None})) == []


@pytest.mark.parametrize(("peak", "is_told"), [(951.0, True), (949.0, False)])
def test_memory_is_full_above_95_percent_of_the_device(peak: float, is_told: bool) -> None:
    device = {"device": [Event("device", None, {"name": "GPU", "total_mib": 1000.0})]}
    run = make_run(change=lambda *_: {"cuda_mib": peak}, events=lambda _: device)
    assert (told(run) == ["memory_full"]) is is_told
    assert told(make_run(change=lambda *_: {"cuda_mib": peak})) == []  # a device of unknown size


@pytest.mark.parametrize(("rss", "is_told"), [(620.0, True), (590.0, False)])
def test_more_memory_is_a_fifth_more_than_the_healthy_runs(rss: float, is_told: bool) -> None:
    run = make_run(change=lambda *_: {"rss_mib": rss})
    assert (told(run, baseline=make_run()) == ["more_memory"]) is is_told
    wide = seeds(change=lambda *_: {"rss_mib": 640.0})
    assert told(run, baseline=make_run(), replicates=wide) == []
    small = make_run(change=lambda *_: {"rss_mib": 50.0})
    assert told(make_run(change=lambda *_: {"rss_mib": 100.0}), baseline=small) == []  # less than 64 MiB more


SAVE_AT = 19


def saved(value: str, step: int) -> Event:
    return Event("checkpoint_saved", step, {"path": f"step{step}.pt", "param_hash": value})


def restarted(
    change: Any = None, *, start: str = "saved19", ranks: int = 1, resumed_ranks: int | None = None, whole: Any = None
) -> ProbeResult:
    """Return a run that was killed after step 19 and resumed, with `change` after that; `whole` is for the other one."""
    seam = Event("restart", SAVE_AT, {"save_at": SAVE_AT, "resumed_ranks": resumed_ranks or ranks})
    after = Event("initial_params", SAVE_AT + 1, {"param_hash": start, "param_norm": 10.0, "num_params": 1000})
    run = make_run(ranks=ranks, change=lambda rank, step: change(rank, step) if change and step > SAVE_AT else {})
    records = []
    for record in run.fingerprint.ranks:
        saves = [saved("saved9", 9), saved("saved19", SAVE_AT)] if record.rank == 0 else []
        steps = [step for step in record.steps if step.step <= SAVE_AT or record.rank < (resumed_ranks or ranks)]
        records.append(RankRecord(record.rank, tuple(steps), (*record.events, *saves, seam, after)))
    uninterrupted = make_run(ranks=ranks, change=whole).fingerprint.ranks
    return ProbeResult("", replace(run.fingerprint, ranks=tuple(records), uninterrupted=uninterrupted))


@pytest.mark.parametrize("ranks", [1, 2])
def test_restart_that_goes_on_bit_by_bit_is_silent(ranks: int) -> None:
    assert told(restarted(ranks=ranks)) == []


def moved_save(run: ProbeResult, step: int | None, *, value: str = "saved22") -> ProbeResult:
    """Return the run with its last save before the restart at another step; None takes all saves away."""

    def of(event: Event) -> Event:
        return saved(value, step) if step is not None and event.data.get("param_hash") == "saved19" else event

    ranks = [
        replace(
            record,
            events=tuple(of(event) for event in record.events if step is not None or event.name != "checkpoint_saved"),
        )
        for record in run.fingerprint.ranks
    ]
    return replace(run, fingerprint=replace(run.fingerprint, ranks=tuple(ranks)))


def other_way(_: int, step: int) -> dict[str, Any]:
    return {"batch_hash": "x", "loss": 9.0} if step > SAVE_AT else {}


@pytest.mark.parametrize("step", [16, 18])
def test_restart_between_two_saves_is_no_finding_and_says_why(step: int) -> None:
    run = moved_save(restarted(other_way, start="saved22"), step)
    assert told(run) == []
    for name in ("restart_differs", "stale_weights"):
        assert "nothing was saved at step 19" in why_unseen(run.fingerprint, name)
    part = triage_run(run, asked=Asked())
    assert any("nothing was saved at step 19" in text for text in part.cannot_see)
    outcome = judge_outcome(run.fingerprint, Metric(), symptom="restart_differs")
    assert outcome.kind is OutcomeKind.UNTESTABLE


@pytest.mark.parametrize("step", [19, 20])  # a forward between the update and the save begins the next step
def test_restart_after_a_save_is_told(step: int) -> None:
    run = moved_save(restarted(other_way, start="saved22"), step)
    assert told(run) == ["restart_differs"] and why_unseen(run.fingerprint, "restart_differs") == ""


def test_save_is_of_the_step_whose_parameters_it_has() -> None:
    run = restarted(other_way, start="h0-10")
    assert unsaved_step(moved_save(run, 20, value="h0-10").fingerprint) == SAVE_AT  # those of step 10
    assert unsaved_step(moved_save(run, 20).fingerprint) is None


def test_restart_without_a_save_that_was_seen_is_told() -> None:
    run = moved_save(restarted(other_way), None)
    assert told(run) == ["restart_differs"] and unsaved_step(run.fingerprint) is None
    assert "killed and resumed" in why_unseen(make_run().fingerprint, "restart_differs")


@pytest.mark.parametrize(
    ("start", "words"),
    [("saved9", "older checkpoint"), ("init0", "starts anew"), ("other", "other weights than were saved")],
)
def test_restart_with_other_weights_than_were_saved_is_stale(start: str, words: str) -> None:
    found = finding_of("stale_weights", restarted(start=start))
    assert words in found.summary and found.step == 20
    second = finding_of("stale_weights", restarted(start=start, ranks=2))  # rank 1 saves nothing: rank 0's save counts
    assert second.ranks == (0,)


@pytest.mark.parametrize(
    ("fields", "stage"),
    [
        ({"batch_hash": "b0-0-0", "loss": 9.0}, Stage.DATA),
        ({"loss": 1.5, "grad_norm": 2.0}, Stage.FORWARD),
        ({"grad_norm": 2.0}, Stage.GRADIENT),
        ({"lr": (0.05,)}, Stage.LEARNING_RATE),
        ({"param_hash": "z"}, Stage.UPDATED_PARAMETERS),
    ],
)
def test_restart_that_differs_names_the_first_signal(fields: dict[str, Any], stage: Stage) -> None:
    step = 30 if "param_hash" in fields else 22
    found = finding_of("restart_differs", restarted(lambda _, at: fields if at == step else {}))
    assert (found.stage, found.step, found.ranks) == (stage, step, (0,))


def test_restart_of_a_program_that_does_not_repeat_itself_is_judged_by_its_own_noise() -> None:
    def noisy(_: int, step: int) -> dict[str, Any]:
        return {"grad_norm": 1.0 + 1e-4 * (step % 3)}

    assert told(restarted(lambda *_: {"grad_norm": 1.0002}, whole=noisy)) == []
    rounding = restarted(lambda rank, step: {"loss": make_run().fingerprint.ranks[0].steps[step].loss * (1.0 + 1e-7)})  # type: ignore[operator]
    assert told(rounding) == []


def test_restart_with_another_number_of_ranks_compares_the_mean_loss() -> None:
    assert told(restarted(ranks=2, resumed_ranks=1)) == []
    off = restarted(lambda *_: {"loss": 9.0}, ranks=2, resumed_ranks=1)
    assert told(off) == ["restart_differs"]


def test_run_without_a_restart_has_no_finding_of_one() -> None:
    fingerprint = replace(make_run().fingerprint, uninterrupted=make_run(seed=1).fingerprint.ranks)
    assert told(ProbeResult("", fingerprint)) == []


def test_derived_metrics_of_a_healthy_run() -> None:
    run = make_run(ranks=2).fingerprint
    found = {name: derived_metric(run, name) for name in DERIVED_METRICS}
    assert found["coverage"] == 1.0 and found["moved"] == 1.0 and found["num_spikes"] == 0.0 and found["rank_gap"] == 0.0
    assert found["pre_clip_norm"] == pytest.approx(1.05, abs=0.06)


def test_derived_metrics_of_sick_runs() -> None:
    half = make_run(ranks=2, change=lambda rank, step: {"samples": sample_text(step, 100 + step)})
    assert derived_metric(half.fingerprint, "coverage") == 0.5
    assert derived_metric(make_run(change=lambda _, step: {"moved": 0.5 if step else 1.0}).fingerprint, "moved") == 0.5
    assert derived_metric(make_run(ranks=2, change=lambda rank, _: {"param_hash": str(rank)}).fingerprint, "rank_gap") == 1.0
    spiky = make_run(100, change=lambda _, step: {"loss": 9.0} if step in (60, 75) else {})
    assert derived_metric(spiky.fingerprint, "num_spikes") == 2.0


def test_derived_metrics_without_what_they_take_are_none_and_unknown_ones_an_error() -> None:
    assert all(derived_metric(make_run(0).fingerprint, name) is None for name in DERIVED_METRICS)
    with pytest.raises(ValueError, match="no derived metric 'x'; known: coverage"):
        derived_metric(make_run().fingerprint, "x")


def test_table_has_every_symptom_of_every_category_and_says_something_of_each() -> None:
    assert {symptom.category for symptom in SYMPTOMS.values()} == set(Category)
    assert all(symptom.description and symptom.look_at for symptom in SYMPTOMS.values())
    assert set(SYMPTOMS) > BASELINE_SYMPTOMS and len(SYMPTOMS) == 49
    assert set(SYMPTOMS) > WIDER_SYMPTOMS.keys()
    assert not WIDER_SYMPTOMS.keys() & {name for names in WIDER_SYMPTOMS.values() for name in names}
