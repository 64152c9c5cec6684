"""First divergence: the earliest step, and within it the signal nearest to the cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bisect_train.core.fingerprint import Ending, EndingKind, Event, Fingerprint, MetricSeries, RankRecord, StepRecord
from bisect_train.verdict.divergence import Stage, first_divergence, step_rows, unequal_counts

BASE = StepRecord(
    step=0,
    loss=2.0,
    micro=(1.0, 1.0),
    grad_norm=1.0,
    clip_norm=1.5,
    lr=(0.1,),
    param_norm=3.0,
    param_hash="aa",
    batch_hash="bb",
    samples="00000001",
    collectives="2:aa",
    dtypes=("param:float32",),
    step_s=0.1,
    rss_mib=100.0,
)


def run(*steps: StepRecord, ending: EndingKind = EndingKind.STOPPED, ranks: int = 1, facts: str = "2.5") -> Fingerprint:
    records = tuple(RankRecord(rank, steps or (BASE, replace(BASE, step=1))) for rank in range(ranks))
    return Fingerprint(Ending(ending), records, facts=(("torch", facts), ("executable", f"/env{facts}/python")))


def test_divergence_equal_runs_gives_none() -> None:
    assert first_divergence(run(), run()) is None


@pytest.mark.parametrize(
    ("change", "stage", "signal"),
    [
        ({"batch_hash": "cc", "loss": 3.0, "param_hash": "zz"}, Stage.DATA, "batch_hash"),
        ({"dtypes": ("param:bfloat16",), "loss": 3.0}, Stage.INITIAL_PARAMETERS, "dtypes"),
        ({"micro": (1.5, 1.0), "loss": 2.5, "clip_norm": 2.0}, Stage.FORWARD, "micro"),
        ({"loss": float("nan"), "clip_norm": 2.0}, Stage.FORWARD, "loss"),
        ({"missing_grads": 3, "clip_norm": 2.0}, Stage.GRADIENT, "missing_grads"),
        ({"clip_norm": 2.0, "param_hash": "zz"}, Stage.GRADIENT, "clip_norm"),
        ({"grad_norm": 0.5, "param_hash": "zz"}, Stage.CLIPPING, "grad_norm"),
        ({"clip_norm": None, "grad_norm": 1.5, "param_hash": "zz"}, Stage.CLIPPING, "grad_norm"),
        ({"samples": "0000000a", "loss": 3.0}, Stage.DATA, "samples"),
        ({"collectives": "3:ff", "lr": (0.2,)}, Stage.REDUCTION, "collectives"),
        ({"lr": (0.2,), "param_hash": "zz"}, Stage.LEARNING_RATE, "lr"),
        ({"param_hash": "zz", "param_norm": 4.0}, Stage.UPDATED_PARAMETERS, "param_hash"),
    ],
)
def test_divergence_first_signal_in_causal_order_names_the_stage(change: dict[str, object], stage: Stage, signal: str) -> None:
    other = run(BASE, replace(BASE, step=1, **change), replace(BASE, step=2, batch_hash="later"))  # type: ignore[arg-type]
    same = run(BASE, replace(BASE, step=1), replace(BASE, step=2))
    found = first_divergence(same, other)
    assert found is not None
    assert (found.stage, found.signal, found.step, found.rank) == (stage, signal, 1, 0)


def test_divergence_without_clipping_calls_the_norm_a_gradient() -> None:
    plain = replace(BASE, clip_norm=None)
    found = first_divergence(run(plain), run(replace(plain, grad_norm=2.0)))
    assert found is not None and found.stage is Stage.GRADIENT


def test_divergence_earlier_step_wins_over_earlier_stage() -> None:
    left = run(BASE, replace(BASE, step=1))
    right = run(replace(BASE, lr=(0.2,)), replace(BASE, step=1, batch_hash="cc"))
    found = first_divergence(left, right)
    assert found is not None and (found.stage, found.step) == (Stage.LEARNING_RATE, 0)


def test_divergence_on_second_rank_names_the_rank() -> None:
    left, right = run(ranks=2), run(ranks=2)
    changed = replace(right.ranks[1], steps=(replace(BASE, batch_hash="cc"), replace(BASE, step=1)))
    found = first_divergence(left, replace(right, ranks=(right.ranks[0], changed)))
    assert found is not None and (found.stage, found.rank, found.step) == (Stage.DATA, 1, 0)


def test_divergence_missing_hash_is_no_difference() -> None:
    assert first_divergence(run(BASE), run(replace(BASE, param_hash=None, batch_hash=None))) is None


def test_divergence_nan_equals_nan() -> None:
    sick = replace(BASE, loss=float("nan"), micro=(float("nan"),))
    assert first_divergence(run(sick), run(replace(sick))) is None


def test_divergence_environment_comes_first_and_paths_do_not_count() -> None:
    assert first_divergence(run(), run(replace(BASE, loss=9.0))) is not None
    found = first_divergence(run(), run(replace(BASE, loss=9.0), facts="2.6"))
    assert found is not None and (found.stage, found.signal, found.step) == (Stage.ENVIRONMENT, "torch", None)


def test_divergence_number_of_parameters_is_initial_parameters() -> None:
    def sized(num: int) -> Fingerprint:
        events = (Event("first_batch", 0, {"num_params": num}),)
        return Fingerprint(Ending(EndingKind.STOPPED), (RankRecord(0, (BASE,), events),))

    found = first_divergence(sized(10), sized(12))
    assert found is not None and found.stage is Stage.INITIAL_PARAMETERS


def test_divergence_ending_counts_after_all_steps() -> None:
    found = first_divergence(run(), run(BASE, ending=EndingKind.CRASHED))
    assert found is not None and (found.stage, found.step) == (Stage.ENDING, 1)


def test_divergence_time_counts_only_when_everything_else_is_equal() -> None:
    steps = [replace(BASE, step=idx) for idx in range(6)]
    slow = [replace(step, step_s=0.4) for step in steps]
    found = first_divergence(run(*steps), run(*slow))
    assert found is not None and (found.stage, found.signal) == (Stage.TIME_AND_MEMORY, "step_s")
    noisy = [replace(step, step_s=0.12, rss_mib=104.0) for step in steps]
    assert first_divergence(run(*steps), run(*noisy)) is None


def logged(values: tuple[float, ...], steps: tuple[int, ...] = (), *, name: str = "val_loss") -> Fingerprint:
    return replace(run(), metrics=(MetricSeries(name, values, steps),))


def test_divergence_metric_of_the_log_is_compared_value_by_value() -> None:
    found = first_divergence(logged((3.0, 2.0), (0, 20)), logged((3.0, 2.5), (0, 20)))
    assert found is not None and (found.stage, found.signal, found.step) == (Stage.METRIC, "val_loss", 20)
    assert (found.left, found.right) == ("2.0", "2.5")
    unnumbered = first_divergence(logged((3.0, 2.0)), logged((3.0, 2.5)))
    assert unnumbered is not None and (unnumbered.signal, unnumbered.step) == ("val_loss (value 2)", None)
    other_steps = first_divergence(logged((3.0,), (10,)), logged((2.0,), (20,)))
    assert other_steps is not None and other_steps.step is None
    nan = float("nan")
    assert first_divergence(logged((nan, 1.0)), logged((nan, 1.0))) is None


def test_divergence_metric_of_the_log_comes_after_the_ending_and_before_time() -> None:
    crashed = replace(logged((2.0,)), ending=Ending(EndingKind.CRASHED))
    found = first_divergence(logged((1.0,)), crashed)
    assert found is not None and found.stage is Stage.ENDING
    steps = tuple(replace(BASE, step=idx) for idx in range(6))
    slow = tuple(replace(step, step_s=0.4) for step in steps)
    sides = [replace(run(*part), metrics=(MetricSeries("val_loss", (level,)),)) for part, level in ((steps, 1.0), (slow, 2.0))]
    found = first_divergence(sides[0], sides[1])
    assert found is not None and found.stage is Stage.METRIC


def test_unequal_counts_name_series_that_one_side_lacks_or_has_less_of() -> None:
    assert unequal_counts(logged((1.0, 2.0)), run()) == (("val_loss", 2, 0),)
    assert unequal_counts(logged((1.0,)), logged((1.0, 2.0))) == (("val_loss", 1, 2),)
    assert unequal_counts(logged((1.0,)), logged((2.0,))) == ()
    assert first_divergence(logged((1.0,)), run()) is None


def test_step_rows_cover_both_runs_and_compare_hashes() -> None:
    left = run(BASE, replace(BASE, step=1))
    right = run(replace(BASE, loss=2.5, param_hash="zz"), replace(BASE, step=1), replace(BASE, step=2))
    rows = step_rows(left, right)
    assert [row.step for row in rows] == [0, 1, 2]
    assert rows[0].loss_delta == 0.5 and rows[0].has_equal_params is False and rows[0].has_equal_batch is True
    assert rows[1].loss_delta == 0.0
    assert rows[2].losses == (None, 2.0) and rows[2].loss_delta is None and rows[2].has_equal_params is None


def test_step_rows_without_recorder_is_empty() -> None:
    nothing = Fingerprint(Ending(EndingKind.FINISHED))
    assert step_rows(nothing, nothing) == () and first_divergence(nothing, nothing) is None


def starting(param_hash: str, **change: object) -> Fingerprint:
    events = (Event("first_batch", 0, {"num_params": 10}), Event("initial_params", 0, {"param_hash": param_hash}))
    steps = (replace(BASE, **change), replace(BASE, step=1))  # type: ignore[arg-type]
    return Fingerprint(Ending(EndingKind.STOPPED), (RankRecord(0, steps, events),))


def test_divergence_initial_parameters_come_after_the_data_and_before_the_loss() -> None:
    found = first_divergence(starting("aa"), starting("bb", loss=3.0))
    assert found is not None and (found.stage, found.signal, found.step) == (Stage.INITIAL_PARAMETERS, "param_hash", 0)
    assert (found.left, found.right) == ("aa", "bb")
    found = first_divergence(starting("aa"), starting("bb", batch_hash="cc"))
    assert found is not None and found.stage is Stage.DATA
    found = first_divergence(starting("aa"), starting("aa", loss=3.0))
    assert found is not None and found.stage is Stage.FORWARD


def test_divergence_initial_parameters_are_compared_without_any_step() -> None:
    sides = [replace(starting(value), ranks=(replace(starting(value).ranks[0], steps=()),)) for value in ("aa", "bb")]
    found = first_divergence(sides[0], sides[1])
    assert found is not None and found.signal == "param_hash"


def test_divergence_rates_name_the_groups_and_show_whole_lists() -> None:
    left, right = (run(replace(BASE, lr=rates)) for rates in ((0.0025, 0.005, 0.1), (0.0025, 0.0025, 0.1)))
    found = first_divergence(left, right)
    assert found is not None and (found.stage, found.signal) == (Stage.LEARNING_RATE, "lr of group 1")
    assert (found.left, found.right) == ("(0.0025, 0.005, 0.1)", "(0.0025, 0.0025, 0.1)")
    found = first_divergence(left, run(replace(BASE, lr=(0.0, 0.0, 0.1))))
    assert found is not None and found.signal == "lr of groups 0, 1"
    found = first_divergence(left, run(replace(BASE, lr=(0.0025, 0.005))))
    assert found is not None and found.signal == "lr"


def ranks_with(*norms: float, collectives: str = "2:aa") -> Fingerprint:
    records = [RankRecord(rank, (replace(BASE, clip_norm=norm, collectives=collectives),)) for rank, norm in enumerate(norms)]
    return Fingerprint(Ending(EndingKind.STOPPED), tuple(records))


@pytest.mark.parametrize(
    ("left", "right", "stage"),
    [
        (ranks_with(4.0, 4.0), ranks_with(2.0, 2.0), Stage.REDUCTION),  # averaged twice
        (ranks_with(4.0, 4.0), ranks_with(8.0, 8.0), Stage.REDUCTION),  # summed
        (ranks_with(4.0, 4.0), ranks_with(4.0, 5.0), Stage.REDUCTION),  # each rank its own
        (ranks_with(4.0, 4.0), ranks_with(5.0, 5.0, collectives="1:bb"), Stage.REDUCTION),  # other calls
        (ranks_with(4.0, 4.0), ranks_with(5.0, 5.0), Stage.GRADIENT),
        (ranks_with(4.0, 5.0), ranks_with(4.0, 6.0), Stage.GRADIENT),
        (ranks_with(4.0), ranks_with(2.0), Stage.GRADIENT),
        (ranks_with(0.0, 0.0), ranks_with(2.0, 2.0), Stage.GRADIENT),
    ],
)
def test_divergence_of_norms_across_ranks_is_the_reduction_where_ranks_say_so(
    left: Fingerprint, right: Fingerprint, stage: Stage
) -> None:
    found = first_divergence(left, right)
    assert found is not None and (found.stage, found.signal, found.rank) == (
        stage,
        "clip_norm",
        0 if right.ranks[0].steps[0].clip_norm != 4.0 else 1,
    )
