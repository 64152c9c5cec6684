"""Symptoms of a run that steps but does not learn as it should: each is told of a sick run and not of its healthy twin."""

from __future__ import annotations

import math
from typing import Any

import pytest

from bisect_train.core.fingerprint import Ending, EndingKind, Event, Fingerprint, MetricSeries
from bisect_train.core.probe import ProbeResult
from bisect_train.verdict.divergence import Stage
from bisect_train.verdict.triage import BASELINE_SYMPTOMS, Category, SecondRun, hard_symptoms
from bisect_train.verdict.triage.curves import spike_steps
from tests.support.triage_records import finding_of, judge, make_run, seeds, told

NAN = math.nan


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_triage_healthy_run_alone_and_against_its_baseline_is_silent(ranks: int) -> None:
    run = make_run(ranks=ranks)
    assert judge(run).findings == () and judge(run).category is None
    assert told(run, baseline=make_run(ranks=ranks), replicates=seeds(ranks=ranks)) == []


@pytest.mark.parametrize("seed", range(1, 9))
def test_triage_other_seed_of_the_same_program_shows_only_other_data(seed: int) -> None:
    assert set(told(make_run(seed=seed), baseline=make_run(), replicates=seeds(8)[seed:])) <= {"data_changed"}


def test_nan_loss_is_told_with_step_rank_and_what_came_before() -> None:
    run = make_run(ranks=2, change=lambda rank, step: {"loss": NAN} if (rank, step >= 7) == (1, True) else {})
    found = finding_of("nan_loss", run)
    assert (found.step, found.ranks, found.stage) == (7, (1,), Stage.FORWARD)
    assert any(item.name == "loss at step 6" and item.rank == 1 for item in found.evidence)
    assert judge(run).second_run is SecondRun.ANOMALY


def test_value_that_is_not_finite_once_says_so() -> None:
    once = make_run(change=lambda _, step: {"loss": NAN} if step == 5 else {})
    assert finding_of("nan_loss", once).summary == "the loss is not finite at step 5 (1 of 40 steps)"
    lasting = make_run(change=lambda _, step: {"loss": NAN} if step >= 5 else {})
    assert finding_of("nan_loss", lasting).summary == "the loss is not finite from step 5 on"
    last = make_run(change=lambda _, step: {"loss": NAN} if step == 39 else {})
    assert finding_of("nan_loss", last).summary == "the loss is not finite at step 39, the last one"


def test_loss_of_a_skipped_step_is_the_scaler_at_work_unless_it_skips_to_the_end() -> None:
    def skipping(first: int, last: int) -> Any:
        return lambda _, step: {"loss": math.inf, "skipped": True} if first <= step <= last else {}

    assert told(make_run(change=skipping(0, 7))) == []
    assert told(make_run(change=skipping(36, 39))) == []
    assert finding_of("nan_loss", make_run(change=skipping(35, 39))).step == 35
    taken = make_run(change=lambda _, step: {"loss": math.inf} if step == 3 else {})
    assert finding_of("nan_loss", taken).step == 3


def test_nan_in_one_micro_batch_counts() -> None:
    run = make_run(change=lambda _, step: {"micro": (1.0, math.inf)} if step == 3 else {})
    assert finding_of("nan_loss", run).step == 3


def test_nan_gradient_before_the_loss_leads() -> None:
    def change(_: int, step: int) -> dict[str, Any]:
        return {"grad_norm": NAN} if step == 4 else {"grad_norm": NAN, "loss": NAN, "param_norm": NAN} if step > 4 else {}

    assert told(make_run(change=change)) == ["nan_gradient", "nan_loss", "nan_parameter"]


def test_infinite_gradient_of_a_skipped_step_is_the_scaler_at_work() -> None:
    run = make_run(change=lambda _, step: {"grad_norm": math.inf, "clip_norm": math.inf, "skipped": True} if step < 3 else {})
    assert told(run) == []


def test_nan_parameter_alone_is_told() -> None:
    assert told(make_run(change=lambda _, step: {"param_norm": NAN} if step == 10 else {})) == ["nan_parameter"]


def test_nan_names_the_operation_that_anomaly_detection_found() -> None:
    message = "RuntimeError: Function 'LogBackward0' returned nan values in its 0th output."
    run = make_run(
        8,
        change=lambda _, step: {"loss": NAN} if step == 7 else {},
        ending=Ending(EndingKind.CRASHED, message=message, exit_status=1),
    )
    assert any(item.value == "LogBackward0" for item in finding_of("nan_loss", run).evidence)


def test_nan_in_a_printed_loss_is_told_without_a_recorder() -> None:
    logged = ProbeResult(
        "", Fingerprint(Ending(EndingKind.FINISHED), metrics=(MetricSeries("val_loss", (2.0, NAN), (10, 20)),))
    )
    assert finding_of("nan_loss", logged).step == 20
    other = ProbeResult("", Fingerprint(Ending(EndingKind.FINISHED), metrics=(MetricSeries("speed", (2.0, NAN)),)))
    assert told(other) == []


@pytest.mark.parametrize(
    ("norm", "is_told"),
    [
        (lambda step: 1.0 if step < 20 else 5e3, True),
        (lambda step: 1.0 if step < 20 else 9e2, False),  # below 1e3
        (lambda step: 2e4 + step, False),  # a loss that is a sum
        (lambda step: 5e3 if step == 20 else 1.0, False),  # one spike that heals
        (lambda step: 5e3 if step == 39 else 1.0, True),  # the last step
    ],
)
def test_exploding_gradient_by_itself_needs_growth_that_stays(norm: Any, is_told: bool) -> None:
    run = make_run(change=lambda _, step: {"grad_norm": norm(step)})
    assert (told(run) == ["exploding_gradient"]) is is_told


@pytest.mark.parametrize(("factor", "is_told"), [(65536.0, True), (11.0, True), (8.0, False)])
def test_exploding_gradient_against_a_baseline_is_ten_times_its_largest(factor: float, is_told: bool) -> None:
    base = make_run(change=lambda *_: {"grad_norm": 200.0})
    run = make_run(change=lambda *_: {"grad_norm": 200.0 * factor})
    assert ("exploding_gradient" in told(run, baseline=base)) is is_told


@pytest.mark.parametrize(("norm", "is_told"), [(1e-7, True), (0.0, True), (2e-6, False)])
def test_vanishing_gradient_in_the_first_steps_is_told(norm: float, is_told: bool) -> None:
    assert ("vanishing_gradient" in told(make_run(change=lambda *_: {"grad_norm": norm}))) is is_told


def test_gradient_that_vanishes_late_is_convergence() -> None:
    assert told(make_run(change=lambda _, step: {"grad_norm": 1e-9} if step > 15 else {})) == []


def test_gradient_that_vanishes_after_a_load_went_on_where_it_had_converged() -> None:
    loaded = {"checkpoint_loaded": [Event("checkpoint_loaded", 0, {"missing": 0, "unexpected": 0})]}
    resumed = make_run(change=lambda *_: {"grad_norm": 1e-8}, events=lambda _: loaded)
    assert told(resumed) == []
    assert told(resumed, baseline=make_run(events=lambda _: loaded)) == ["vanishing_gradient"]


def test_vanishing_gradient_against_the_baseline_is_relative() -> None:
    base, tiny = make_run(change=lambda *_: {"grad_norm": 1e-7}), make_run(change=lambda *_: {"grad_norm": 1e-4})
    assert told(base, baseline=base) == []
    assert told(tiny, baseline=make_run(change=lambda *_: {"grad_norm": 1.0})) == ["vanishing_gradient"]


def test_rate_of_zero_at_step_0_is_a_warm_up_and_for_five_steps_a_stall() -> None:
    assert told(make_run(change=lambda _, step: {"lr": (0.1 * step,) if step < 10 else (1.0,)})) == []
    assert told(make_run(change=lambda _, step: {"lr": (0.0, 0.0)})) == ["lr_stalls"]
    assert told(make_run(change=lambda _, step: {"lr": (0.0,) if step < 4 else (0.1,)})) == []
    assert told(make_run(change=lambda _, step: {"lr": (0.0,) if step >= 30 else (0.1,)})) == []  # decayed
    assert told(make_run(change=lambda _, step: {"lr": (0.0, 0.1)})) == []  # one frozen group


@pytest.mark.parametrize(
    ("rate", "is_told"),
    [
        (lambda step: 0.1 if step < 20 else 2.0, True),
        (lambda step: 0.1 if step < 20 else 0.9, False),
        (lambda step: 1e-8 if step < 3 else 0.1, False),  # the start of a warm-up
        (lambda step: 0.1 * (10 - step % 10) / 10 + 1e-4, False),  # warm restarts
        (lambda step: 0.1 * 0.1 ** (step // 10), False),  # drops
    ],
)
def test_rate_jump_is_growth_over_everything_before(rate: Any, is_told: bool) -> None:
    assert (told(make_run(change=lambda _, step: {"lr": (0.1, rate(step))})) == ["lr_jumps"]) is is_told


def test_rate_jump_that_the_baseline_has_is_its_schedule() -> None:
    base = make_run(change=lambda _, step: {"lr": (0.1,) if step < 20 else (2.0,)})
    assert told(base, baseline=base) == []
    late = make_run(change=lambda _, step: {"lr": (0.1,) if step < 25 else (2.0,)})
    assert "lr_jumps" in told(late, baseline=base)


def test_rate_that_should_move_and_does_not_is_a_stall() -> None:
    base = make_run(change=lambda _, step: {"lr": (0.1, 0.01 * (step + 1))})
    found = finding_of("lr_stalls", make_run(change=lambda *_: {"lr": (0.1, 0.01)}), baseline=base)
    assert "group 1" in found.summary and found.needs_baseline
    assert told(make_run(), baseline=make_run()) == []


def test_rates_that_differ_name_the_groups_and_both_lists() -> None:
    base = make_run(change=lambda _, step: {"lr": (0.0025, 0.005)})
    found = finding_of("lr_differs", make_run(change=lambda *_: {"lr": (0.0025, 0.0025)}), baseline=base)
    assert (found.step, found.stage) == (0, Stage.LEARNING_RATE)
    assert "group 1" in found.summary and found.evidence[0].value == "[0.0025, 0.0025]"
    assert found.evidence[0].expected == "[0.0025, 0.005]"
    close = make_run(change=lambda *_: {"lr": (0.0025, 0.005 * (1 + 1e-8))})
    assert told(close, baseline=base) == []


def flat(_: int, step: int) -> dict[str, Any]:
    return {"loss": 2.3 + 1e-5 * (step % 2)}


def test_plateau_by_itself_is_a_flat_curve_over_the_window() -> None:
    assert told(make_run(120, change=flat)) == ["plateau"]
    assert told(make_run(99, change=flat)) == []  # shorter than the window
    assert told(make_run(30, change=flat), sanity_window=30) == ["plateau"]
    loaded = {"checkpoint_loaded": [Event("checkpoint_loaded", None, {})]}
    assert told(make_run(120, change=flat, events=lambda _: loaded)) == []  # fine-tuning goes on where it was
    assert told(make_run(120, change=lambda rank, step: {**flat(rank, step), "lr": (0.001 * step,)})) == []  # warm-up


def test_plateau_against_a_baseline_that_drops_is_told_and_slower_learning_is_not() -> None:
    base = make_run()
    assert "plateau" in told(make_run(change=lambda _, step: {"loss": 3.0 + 0.01 * (-1) ** step}), baseline=base)
    slower = make_run(change=lambda _, step: {"loss": 1.0 + 2.0 * math.exp(-step / 25.0) + 0.05 * (-1) ** step})
    assert "plateau" not in told(slower, baseline=base)
    assert "plateau" not in told(make_run(change=flat), baseline=make_run(change=flat))


def gradients(*, first: dict[str, Any], last: dict[str, Any], still: tuple[str, ...] | None = None) -> Any:
    """Return events of gradients at both ends; what never had one is still, unless `still` says what is."""
    if still is None:
        gone = [{*data.get("missing", ()), *data.get("zero", ())} for data in (first, last)]
        still = tuple(sorted(gone[0] & gone[1]))
    found = {
        "gradients": [
            Event("gradients", step, {"missing": [], "zero": [], "num": 8, **data}) for step, data in ((0, first), (39, last))
        ],
        "still_params": [Event("still_params", 39, {"names": list(still), "num": len(still), "of": 8})],
    }
    return lambda rank: found


def test_parameter_without_a_gradient_at_both_ends_is_disconnected_and_not_frozen_too() -> None:
    gone = {"missing": ["head.weight"]}
    assert told(make_run(events=gradients(first=gone, last=gone, still=("head.weight",)))) == ["disconnected_parameters"]
    zero = {"zero": ["head.weight"]}
    assert told(make_run(events=gradients(first=zero, last=gone))) == ["disconnected_parameters"]
    assert told(make_run(events=gradients(first=zero, last={}))) == []  # layers that start at zero
    expert = {"missing": ["block.experts.3.weight"]}
    assert told(make_run(events=gradients(first=expert, last=expert, still=("block.experts.3.weight",)))) == []
    assert told(make_run(4, events=gradients(first=gone, last=gone))) == []  # too few steps to tell


def test_parameter_that_moved_had_a_gradient_between_the_steps_that_were_looked_at() -> None:
    gone = {"missing": ["head.weight"]}
    events = gradients(first=gone, last=gone, still=())
    assert told(make_run(events=events)) == []  # two tasks in turn, layers that are dropped at random
    unknown = make_run(events=lambda rank: {**events(rank), "still_params": []})
    assert told(unknown) == ["disconnected_parameters"]  # where nothing says that it moved


@pytest.mark.parametrize(
    ("norms", "param_norms", "is_told"),
    [
        ((0.0, 0.0, 0.0), (10.0, 9.9), True),  # weight decay moves what never had a gradient
        ((0.0, 0.0, 0.0), (10.0, 10.0), True),
        ((0.0, 1e-9, 0.0), (10.0, 9.9), False),  # another parameter may have had this one, or this one
        ((0.0, None, 0.0), (10.0, 9.9), False),
        ((0.0, 0.0, 0.0), (10.0, 10.1), False),  # gradients that were zeroed before they were looked at
        ((0.0, 0.0, 0.0), (None, None), False),
    ],
)
def test_parameter_that_moved_never_had_a_gradient_only_if_nothing_had_one_at_any_step(
    norms: tuple[float | None, ...], param_norms: tuple[float | None, ...], is_told: bool
) -> None:
    def change(_: int, step: int) -> dict[str, Any]:
        which = 0 if step == 0 else 2 if step == 39 else 1
        return {"grad_norm": norms[which], "param_norm": {0: param_norms[0], 39: param_norms[1]}.get(step)}

    zero = {"zero": ["head.weight"]}
    run = make_run(change=change, events=gradients(first=zero, last=zero, still=()))
    assert ("disconnected_parameters" in told(run)) is is_told
    assert ("disconnected_parameters" in told(run, baseline=make_run())) is is_told
    assert "disconnected_parameters" not in told(run, baseline=run)


def cut(*, missing: tuple[str, ...], num_missing: int, still: tuple[str, ...], num_still: int, of: int = 130) -> Any:
    """Return events whose lists of names are cut, equal at both ends."""
    gone = {"missing": list(missing), "zero": [], "num_missing": num_missing, "num_zero": 0, "num": of}
    kept = {"names": list(still), "num": num_still, "of": of}
    return lambda _: {
        "gradients": [Event("gradients", step, gone) for step in (0, 39)],
        "still_params": [Event("still_params", 39, kept)],
    }


MANY = tuple(f"p{idx:03}" for idx in range(130))


def test_lists_of_names_that_were_cut_are_no_whole_lists() -> None:
    apart = make_run(events=cut(missing=MANY[60:110], num_missing=120, still=MANY[:50], num_still=120))
    assert told(apart) == ["disconnected_parameters"]  # not frozen: p000 may be without a gradient as well
    assert "at least 110 of 130 parameters never" in finding_of("disconnected_parameters", apart).summary
    assert told(apart, baseline=apart) == []
    few = make_run(events=cut(missing=MANY[60:110], num_missing=70, still=MANY[:50], num_still=60))
    assert told(few) == []  # they need not have one in common
    both = make_run(events=cut(missing=MANY[:50], num_missing=120, still=MANY[:50], num_still=120))
    assert "p000, p001, p002 and at least 117 more" in finding_of("disconnected_parameters", both).summary
    other = make_run(events=cut(missing=MANY[50:100], num_missing=120, still=MANY[50:100], num_still=120))
    assert told(other, baseline=both) == []  # the same parameters, in another order


def test_frozen_parameters_are_counted_where_their_list_was_cut() -> None:
    run = make_run(events=cut(missing=(), num_missing=0, still=MANY[:50], num_still=120))
    assert told(run) == ["frozen_parameters"]
    assert "p000, p001, p002 and at least 117 more get a gradient" in finding_of("frozen_parameters", run).summary


@pytest.mark.parametrize("kind", ["param:bfloat16", "param:float16"])
def test_parameter_that_stays_by_rounding_is_frozen_only_against_a_baseline(kind: str) -> None:
    events = gradients(first={}, last={}, still=("norm.weight",))
    run = make_run(change=lambda *_: {"dtypes": (kind,)}, events=events)
    assert told(run) == []
    assert told(run, baseline=make_run(change=lambda *_: {"dtypes": (kind,)})) == ["frozen_parameters"]


def test_parameter_group_with_a_rate_of_zero_throughout_is_frozen_on_purpose() -> None:
    events = gradients(first={}, last={}, still=("body.weight",))
    assert told(make_run(change=lambda *_: {"lr": (0.0, 0.1)}, events=events)) == []
    late = make_run(change=lambda _, step: {"lr": (0.0 if step < 39 else 0.1, 0.1)}, events=events)
    assert told(late) == ["frozen_parameters"]


def test_parameter_without_a_gradient_in_the_baseline_as_well_is_no_finding() -> None:
    gone = {"missing": ["pooler.weight"]}
    run = make_run(events=gradients(first=gone, last=gone))
    assert told(run, baseline=run) == []
    more = {"missing": ["pooler.weight", "head.weight"]}
    found = finding_of("disconnected_parameters", make_run(events=gradients(first=more, last=more)), baseline=run)
    assert "head.weight" in found.summary and "pooler" not in found.summary


def test_parameter_with_a_gradient_that_never_moves_is_frozen() -> None:
    found = finding_of("frozen_parameters", make_run(events=gradients(first={}, last={}, still=("head.weight",))))
    assert "head.weight" in found.summary
    stuck = make_run(change=lambda *_: {"lr": (0.0,)}, events=gradients(first={}, last={}, still=("head.weight",)))
    assert told(stuck) == ["lr_stalls"]  # nothing moves without a rate


@pytest.mark.parametrize(
    ("kind", "share", "rate", "is_told"),
    [
        ("param:bfloat16", 0.03, lambda step: 1e-4, True),
        ("param:bfloat16", 0.3, lambda step: 1e-4, False),
        ("param:float32", 0.03, lambda step: 1e-4, False),  # rows of an embedding that no batch has
        ("param:bfloat16", 0.03, lambda step: 1e-6 * (step + 1), False),  # warming up
    ],
)
def test_lost_updates_by_themselves_need_low_precision(kind: str, share: float, rate: Any, is_told: bool) -> None:
    run = make_run(change=lambda _, step: {"dtypes": (kind,), "moved": share, "lr": (rate(step),)})
    assert (told(run) == ["lost_updates"]) is is_told


@pytest.mark.parametrize(("share", "is_told"), [(0.7, True), (0.8, False)])
def test_lost_updates_against_the_baseline_in_any_precision(share: float, is_told: bool) -> None:
    assert ("lost_updates" in told(make_run(change=lambda *_: {"moved": share}), baseline=make_run())) is is_told


def test_changed_data_shows_first_values_of_both() -> None:
    def values(rank: int) -> dict[str, list[Event]]:
        return {"first_batch": [Event("first_batch", 0, {"num_params": 1000, "values": [["0", [7.0]]]})]}

    run = make_run(change=lambda _, step: {"batch_hash": f"other{step}"}, events=values)
    found = finding_of("data_changed", run, baseline=make_run())
    assert found.step == 0 and found.stage is Stage.DATA
    assert any("7.0" in item.value and "0.0" in item.expected for item in found.evidence)
    assert "in another order" in found.summary  # all samples are the same
    late = make_run(change=lambda _, step: {"batch_hash": "x"} if step == 9 else {})
    assert finding_of("data_changed", late, baseline=make_run()).step == 9


def test_spikes_are_counted_against_the_healthy_runs() -> None:
    def spiky(_: int, step: int) -> dict[str, Any]:
        return {"loss": 9.0} if step in (60, 75, 90) else {}

    run, base = make_run(100, change=spiky), make_run(100)
    assert told(run, baseline=base) == ["loss_spikes"]
    assert finding_of("loss_spikes", run, baseline=base).step == 60
    assert told(run, baseline=run) == [] and told(run) == []
    once = make_run(100, change=lambda _, step: {"loss": 1.3} if step == 60 else {})
    assert "loss_spikes" not in told(once, baseline=base)


def test_spikes_are_told_with_their_step_where_the_first_steps_have_no_loss() -> None:
    def late(spikes: tuple[int, ...]) -> Any:
        def change(_: int, step: int) -> dict[str, Any]:
            return {"loss": None, "micro": ()} if step < 8 else {"loss": 9.0} if step in spikes else {}

        return change

    run, base = make_run(60, change=late((40, 50))), make_run(60, change=late(()))
    assert finding_of("loss_spikes", run, baseline=base).step == 40


def test_spike_is_six_robust_deviations_and_a_tenth_above_the_steps_before() -> None:
    steady = [1.0 + 0.01 * (-1) ** idx for idx in range(30)]
    assert spike_steps([*steady, 1.12]) == [30]
    assert spike_steps([*steady, 1.09]) == []  # less than a tenth
    assert spike_steps([1.0 + 0.1 * (-1) ** idx for idx in range(30)] + [1.5]) == []  # within the noise
    assert spike_steps([]) == []


def logged(value: float, loss: float = 0.0, *, seed: int = 0, name: str = "val_loss") -> ProbeResult:
    change = (lambda _, step: {"loss": loss + 1.0 + 2.0 * math.exp(-step / 15.0)}) if loss else None
    return make_run(seed=seed, change=change, metrics=(MetricSeries(name, (3.0, value), (0, 39)),))


def test_bad_evaluation_needs_a_training_loss_that_is_not_worse() -> None:
    assert told(logged(2.2), baseline=logged(2.0)) == ["bad_evaluation"]
    assert told(logged(2.05), baseline=logged(2.0)) == []  # within 5 %
    assert told(logged(1.5), baseline=logged(2.0)) == []  # better
    assert "bad_evaluation" not in told(logged(2.5, loss=0.5), baseline=logged(2.0))
    assert told(logged(0.7, name="val_acc"), baseline=logged(0.9, name="val_acc")) == ["bad_evaluation"]
    assert told(logged(0.7, name="speed"), baseline=logged(0.5, name="speed")) == []
    for name in ("value_loss", "latest_loss", "interval_error"):  # of words that only begin or end so
        assert told(logged(3.0, name=name), baseline=logged(2.0, name=name)) == []
    for name in ("eval/loss", "validation-loss", "testLoss", "loss.val"):
        assert told(logged(3.0, name=name), baseline=logged(2.0, name=name)) == ["bad_evaluation"]
    spread = [logged(value, seed=idx + 1).fingerprint for idx, value in enumerate((1.8, 2.0, 2.2))]
    assert told(logged(2.3), baseline=logged(2.0), replicates=spread) == []  # seeds explain it


def test_too_good_is_beyond_what_seeds_explain() -> None:
    lower = make_run(change=lambda _, step: {"loss": 0.8 + 2.0 * math.exp(-step / 15.0) + 0.05 * (-1) ** step})
    assert told(lower, baseline=make_run(), replicates=seeds()) == ["too_good"]
    assert told(lower, baseline=make_run()) == []  # without seeds only below half
    half = make_run(change=lambda _, step: {"loss": 0.3 + 0.05 * (-1) ** step + 2.0 * math.exp(-step / 15.0)})
    assert finding_of("too_good", half, baseline=make_run()).summary.endswith(": less than 50% of it")
    assert finding_of("too_good", lower, baseline=make_run(), replicates=seeds()).summary.endswith("than its seeds explain")


def test_too_smooth_is_a_quarter_of_the_healthy_noise() -> None:
    smooth = make_run(change=lambda _, step: {"loss": 1.0 + 2.0 * math.exp(-step / 15.0)})
    assert told(smooth, baseline=make_run(), replicates=seeds()) == ["too_smooth"]
    calm = make_run(change=lambda _, step: {"loss": 1.0 + 2.0 * math.exp(-step / 15.0) + 0.02 * (-1) ** step})
    assert told(calm, baseline=make_run()) == []
    assert told(smooth, baseline=smooth) == []


def test_too_smooth_is_not_said_of_a_curve_that_does_not_learn() -> None:
    stays = make_run(change=lambda _, step: {"loss": 3.0 - 0.001 * step})
    assert told(stays, baseline=make_run(), replicates=seeds()) == ["plateau"]


def test_against_another_seed_only_what_seeds_do_not_change_is_told() -> None:
    sick = make_run(seed=9, change=lambda *_: {"lr": (0.02,)})
    assert {"data_changed", "lr_differs"} <= set(told(sick, baseline=make_run()))
    assert told(sick, baseline=make_run(), is_same_seed=False) == []


def test_a_spike_in_the_tail_is_no_plateau() -> None:
    healthy = make_run()
    loss = {step.step: step.loss or 0.0 for step in healthy.fingerprint.ranks[0].steps}
    last = max(loss)
    spiky = make_run(change=lambda _, step: {"loss": loss[step] * (20.0 if step in (last - 9, last - 4) else 1.0)})
    assert told(spiky, baseline=healthy) == ["loss_spikes"]


def test_what_the_baseline_shows_as_well_is_how_the_program_is_but_a_nan_is_always_told() -> None:
    stalled = make_run(change=lambda *_: {"lr": (0.0,)})
    assert told(stalled) == ["lr_stalls"] and told(stalled, baseline=stalled) == []
    broken = make_run(change=lambda _, step: {"loss": NAN} if step == 39 else {})
    assert told(broken, baseline=broken) == ["nan_loss"]


def test_failed_baseline_is_not_compared_with() -> None:
    base = make_run(change=lambda *_: {"lr": (0.5,)}, ending=Ending(EndingKind.CRASHED))
    assert told(make_run(), baseline=base) == []


def test_hard_symptoms_are_those_that_need_no_baseline() -> None:
    run = make_run(change=lambda _, step: {"loss": NAN, "lr": (0.0,)} if step > 3 else {"lr": (0.0,)})
    assert hard_symptoms(run.fingerprint) == ("nan_loss", "lr_stalls")
    assert hard_symptoms(make_run(ranks=2).fingerprint) == ()
    assert not set(hard_symptoms(run.fingerprint)) & BASELINE_SYMPTOMS


def test_category_is_that_of_the_first_finding() -> None:
    run = make_run(
        change=lambda _, step: {"loss": NAN} if step == 39 else {}, ending=Ending(EndingKind.CRASHED, message="ValueError: x")
    )
    assert judge(run).category is Category.STOPPED and told(run) == ["crash", "nan_loss"]
