from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint, JudgeResult, MetricSeries, RankRecord, StepRecord
from bisect_train.core.question import Metric
from bisect_train.verdict.outcome import (
    OutcomeKind,
    digest_fingerprint,
    judge_outcome,
    metric_values,
    recorded_metric,
    reduce_values,
)

STOPPED = Ending(EndingKind.STOPPED)


def fingerprint_of(*losses: float, ending: Ending = STOPPED, **step_fields: float) -> Fingerprint:
    steps = tuple(StepRecord(idx, loss=loss, **step_fields) for idx, loss in enumerate(losses))  # type: ignore[arg-type]
    return Fingerprint(ending, ranks=(RankRecord(0, steps),))


def test_outcome_of_a_healthy_run_is_the_tail_mean() -> None:
    outcome = judge_outcome(fingerprint_of(*[9.0] * 6, 2.0, 4.0), Metric())
    assert (outcome.kind, outcome.value) == (OutcomeKind.MEASURED, 3.0)
    assert outcome.digest


@pytest.mark.parametrize(
    ("kind", "outcome"), [(EndingKind.CANNOT_START, OutcomeKind.UNTESTABLE), (EndingKind.NO_RECORDER, OutcomeKind.UNSEEN)]
)
def test_outcome_without_a_start_or_recorder_says_nothing(kind: EndingKind, outcome: OutcomeKind) -> None:
    assert judge_outcome(fingerprint_of(1.0, ending=Ending(kind)), Metric()).kind is outcome


@pytest.mark.parametrize("kind", [EndingKind.CRASHED, EndingKind.TIMEOUT, EndingKind.OUT_OF_MEMORY, EndingKind.KILLED])
def test_outcome_of_a_failure_has_a_signature_and_a_reason(kind: EndingKind) -> None:
    outcome = judge_outcome(fingerprint_of(1.0, ending=Ending(kind)), Metric())
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.signature and outcome.reason


def test_outcome_with_nan_is_a_failure_of_the_metric() -> None:
    outcome = judge_outcome(fingerprint_of(1.0, math.nan), Metric())
    assert (outcome.kind, outcome.signature) == (OutcomeKind.FAILED, "nonfinite:loss")


def test_outcome_without_the_metric_is_no_metric() -> None:
    assert judge_outcome(fingerprint_of(1.0), Metric(name="accuracy")).kind is OutcomeKind.NO_METRIC


@pytest.mark.parametrize(
    ("status", "kind"),
    [(0, "measured"), (1, "failed"), (124, "failed"), (125, "untestable"), (126, "failed"), (137, "untestable")],
)
def test_outcome_of_a_judge_follows_its_exit_status(status: int, kind: str) -> None:
    fingerprint = Fingerprint(STOPPED, judge=JudgeResult(status))
    assert judge_outcome(fingerprint, Metric(), has_judge=True).kind.value == kind


def test_metric_values_are_means_over_ranks_up_to_the_shortest() -> None:
    ranks = (RankRecord(0, (StepRecord(0, loss=1.0), StepRecord(1, loss=3.0))), RankRecord(1, (StepRecord(0, loss=2.0),)))
    assert metric_values(Fingerprint(STOPPED, ranks), "loss") == (1.5,)


def test_metric_values_of_the_log_win_over_the_recorder() -> None:
    fingerprint = Fingerprint(STOPPED, fingerprint_of(1.0).ranks, (MetricSeries("loss", (7.0,)),))
    assert metric_values(fingerprint, "loss") == (7.0,)


def test_digest_changes_with_one_bit_of_the_loss() -> None:
    assert digest_fingerprint(fingerprint_of(1.0), "loss") == digest_fingerprint(fingerprint_of(1.0), "loss")
    assert digest_fingerprint(fingerprint_of(1.0), "loss") != digest_fingerprint(fingerprint_of(math.nextafter(1.0, 2)), "loss")


def test_recorded_metrics_of_time_and_memory_are_judged_by_their_extremes() -> None:
    steps = tuple(StepRecord(idx, loss=1.0, step_s=seconds) for idx, seconds in enumerate((None, 0.3, 0.2, 0.4)))
    fingerprint = Fingerprint(Ending(EndingKind.STOPPED), (RankRecord(0, steps),))
    outcome = judge_outcome(fingerprint, replace(recorded_metric("step_s"), is_paired=False))
    assert outcome.value == 0.2
    assert recorded_metric("cuda_mib").reduce == "max" and recorded_metric("loss") == Metric()


def test_digest_ignores_memory_unless_memory_is_the_metric() -> None:
    small, large = fingerprint_of(1.0, cuda_mib=100.0), fingerprint_of(1.0, cuda_mib=200.0)
    assert digest_fingerprint(small, "loss") == digest_fingerprint(large, "loss")
    assert digest_fingerprint(small, "cuda_mib") != digest_fingerprint(large, "cuda_mib")


def test_digest_of_a_single_printed_number_is_no_evidence() -> None:
    one = Fingerprint(STOPPED, metrics=(MetricSeries("accuracy", (0.8,)),))
    curve = Fingerprint(STOPPED, metrics=(MetricSeries("accuracy", (0.1, 0.4, 0.7, 0.8)),))
    assert digest_fingerprint(one, "accuracy") == ""
    assert digest_fingerprint(curve, "accuracy") != ""


@pytest.mark.parametrize(
    ("how", "value"), [("first", 4.0), ("last", 2.0), ("min", 1.0), ("max", 5.0), ("mean", 3.0), ("tail", 2.0)]
)
def test_reduce_values_by_each_rule(how: str, value: float) -> None:
    assert reduce_values((4.0, 1.0, 5.0, 3.0, 2.0), how) == value
