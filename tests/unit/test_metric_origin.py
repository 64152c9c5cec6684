"""What precision and missing values mean for a verdict, and how a report tells where numbers come from."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bisect_train.core.changes import Point
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint, MetricOrigin, MetricSeries, RankRecord, StepRecord
from bisect_train.core.question import Metric
from bisect_train.core.verdict import Criterion, VerdictKind
from bisect_train.report.sources import Disagreement, find_disagreement, say_precision
from bisect_train.verdict.end_terms import EndRules, Ends, EndsStatus
from bisect_train.verdict.ends import prove_ends
from bisect_train.verdict.evidence import is_metric_fine, judge_variant
from bisect_train.verdict.failing_ends import prove_failing
from bisect_train.verdict.outcome import Observation, Outcome, OutcomeKind, digest_fingerprint, judge_outcome
from tests.support.observations import failed, measured, separated_ends
from tests.support.report_cases import CULPRIT, commit_space, make_fingerprint, make_question, play

FINISHED = Ending(EndingKind.FINISHED)
VAL = Metric("val_loss", "last")
OTHER_FORMAT = MetricOrigin(note="the log may have another format here")
COARSE, FINE = MetricOrigin(decimals=2, digits=3), MetricOrigin(decimals=4, digits=5)
BLIND = Outcome(OutcomeKind.NO_METRIC, reason="no value of val_loss was seen")


def written(*values: float, origin: MetricOrigin = COARSE, name: str = "val_loss", steps: tuple[int, ...] = ()) -> Fingerprint:
    return Fingerprint(FINISHED, metrics=(MetricSeries(name, values, steps, origin),))


def test_outcome_without_a_value_says_why_and_with_one_its_unit() -> None:
    outcome = judge_outcome(written(origin=OTHER_FORMAT), VAL)
    assert outcome.kind is OutcomeKind.NO_METRIC
    assert outcome.reason == "no value of val_loss was seen: the log may have another format here"
    assert judge_outcome(written(2.5, 2.25), VAL).unit == 0.01
    assert judge_outcome(make_fingerprint(3.0), Metric()).unit == 0.0


def test_few_printed_digits_are_no_bits() -> None:
    near, far = (2.31, 2.3, 2.29, 2.28), (4.31, 3.3, 2.29, 1.28)
    assert digest_fingerprint(written(*near), "val_loss") == ""
    assert digest_fingerprint(written(*far), "val_loss") != ""
    assert digest_fingerprint(written(*near, origin=FINE), "val_loss") != ""
    assert digest_fingerprint(written(*near, origin=MetricOrigin("tensorboard", bits=24)), "val_loss") != ""
    assert digest_fingerprint(written(*far, math.nan), "val_loss") != ""


def test_states_of_a_progress_bar_do_not_count_as_bits() -> None:
    bar = replace(FINE, is_redrawn=True)
    assert digest_fingerprint(written(4.31, 3.3, 2.29, 1.28, origin=bar), "val_loss") == ""
    steps = make_fingerprint(3.0).ranks
    digests = {
        digest_fingerprint(Fingerprint(FINISHED, steps, (MetricSeries("val_loss", values, (), bar),)), "val_loss")
        for values in ((4.31, 3.3), (4.31,))
    }
    assert len(digests) == 1 and digests != {""}


def test_equal_values_mean_nothing_where_seeds_lie_within_the_rounding() -> None:
    values = {0: 2.31, 1: 2.35, 2: 2.28}
    ends = replace(separated_ends(), good_values=values, bad_values={idx: value + 1 for idx, value in values.items()})
    assert is_metric_fine(ends) and is_metric_fine(replace(ends, unit=0.001))
    assert not is_metric_fine(replace(ends, unit=0.01))


def test_ends_know_the_unit_of_their_values() -> None:
    runs = [
        replace(run, outcome=replace(run.outcome, unit=0.01))
        for run in (measured(Point(0), 0, 2.0), measured(Point(4), 0, 3.0))
    ]
    assert prove_ends(runs[:1], runs[1:], EndRules(VAL)).unit == 0.01


def test_log_of_another_format_at_an_end_is_untestable_with_the_reason() -> None:
    seen = Observation(Point(0), 0, 0, 0, -1, judge_outcome(written(origin=OTHER_FORMAT), VAL))
    ends = prove_ends([measured(Point(0), 0, 2.0)], [seen], EndRules(VAL))
    assert ends.status is EndsStatus.BAD_UNTESTABLE
    assert ends.reason == "no value of val_loss was seen at the bad end: the log may have another format here"
    both = prove_ends([seen], [seen], EndRules(VAL))
    assert both.status is EndsStatus.NO_METRIC and both.reason.endswith("at either end: the log may have another format here")


@pytest.mark.parametrize("criterion", [Criterion.STATISTICAL, Criterion.EXACT])
def test_log_of_another_format_decides_nothing(criterion: Criterion) -> None:
    seen = Observation(Point(2), 0, 0, 0, -1, judge_outcome(written(origin=OTHER_FORMAT), VAL))
    evidence = judge_variant([seen], separated_ends(criterion=criterion), VAL)
    assert evidence.verdict is VerdictKind.UNTESTABLE and evidence.nats == 0.0
    assert evidence.reason == "no value of val_loss was seen: the log may have another format here"


def test_run_without_the_metric_does_not_pass_where_nan_is_the_failure() -> None:
    ends = Ends(EndsStatus.SEPARATED, criterion=Criterion.SYMPTOM, signature="nonfinite:val_loss")
    blind = Observation(Point(2), 0, 0, 0, -1, BLIND)
    assert judge_variant([blind], ends, VAL).verdict is VerdictKind.UNTESTABLE
    assert judge_variant([blind], replace(ends, signature="boom"), VAL).verdict is VerdictKind.GOOD
    proved = prove_failing([blind], [failed(Point(4), 0, "nonfinite:val_loss")], EndRules(VAL))
    assert proved.status is EndsStatus.GOOD_UNTESTABLE


# ---- the report --------------------------------------------------------------------------------------------------------


def changing(first: int, last: int) -> object:
    """Runs whose log has another format in the versions first..last - 1; what the change after them does shows later."""

    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        own = sum(ord(letter) * (idx + 1) for idx, letter in enumerate(f"{point.to_text()}/{seed}/{repeat}"))
        level = 3.0 + 0.4 * point.holds(CULPRIT)
        shown = make_fingerprint(level, seed=own)
        value = round(shown.ranks[0].steps[-1].loss or 0.0, 4)
        is_other = first <= point.prefix < last and not point.plus and not point.minus
        series = MetricSeries("val_loss", () if is_other else (value,), (), OTHER_FORMAT if is_other else FINE)
        return Fingerprint(FINISHED, (), (series,))

    return behave


def test_format_that_changes_within_the_range_moves_no_verdict() -> None:
    question = make_question(metric=VAL)
    solved = play(changing(3, 9), commit_space(), question)  # type: ignore[arg-type]
    report = solved.report()
    assert report.status == "isolated" and [item.id for item in report.culprits[0].changes] == [
        solved.space.changes[CULPRIT].id
    ]
    seen = [solved.plan.evidence[k] for k in range(3, 9) if k in solved.plan.evidence]
    assert seen and {item.verdict for item in seen} == {VerdictKind.UNTESTABLE}
    reason = "no value of val_loss was seen: the log may have another format here"
    assert any(text.endswith(f"could not be tested: {reason}") for text in report.warnings)


def test_format_that_changes_around_the_culprit_leaves_candidates() -> None:
    solved = play(changing(CULPRIT - 1, CULPRIT + 3), commit_space(), make_question(metric=VAL))  # type: ignore[arg-type]
    report = solved.report()
    assert report.status != "isolated" or report.culprits[0].changes[0].id == solved.space.changes[CULPRIT].id
    said = {item.reason for item in solved.plan.evidence.values() if item.verdict is VerdictKind.UNTESTABLE}
    assert said <= {"no value of val_loss was seen: the log may have another format here"}
    wrong = [
        k for k, item in solved.plan.evidence.items() if item.verdict is (VerdictKind.BAD if k <= CULPRIT else VerdictKind.GOOD)
    ]
    assert not wrong


def with_loss(shift: float, origin: MetricOrigin, *, first: int = 1) -> Fingerprint:
    """A run that prints its loss, rounded to 2 decimals and shifted, from step `first` on."""
    shown = make_fingerprint(3.0)
    losses = [step.loss or 0.0 for step in shown.ranks[0].steps]
    values = tuple(round(loss + (shift if idx >= 5 else 0.0), 2) for idx, loss in enumerate(losses))
    series = MetricSeries("train/loss", values, tuple(range(first, first + 40)), origin)
    return replace(shown, metrics=(series,))


def test_report_says_where_the_metric_was_read_and_warns_where_the_recorder_saw_another() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        shown = make_fingerprint(3.4 if point.holds(2) else 3.0, seed=seed, salt=str(point.holds(2)))
        values = tuple(round((step.loss or 0.0) + 0.25, 2) for step in shown.ranks[0].steps)
        return replace(shown, metrics=(MetricSeries("loss", values, (), COARSE),))

    report = play(behave, commit_space(4)).report()
    (warning,) = [text for text in report.warnings if "recorder" in text]
    assert warning.startswith("loss as the program writes it is not the loss that the recorder saw, by up to 0.25")
    assert "first at step 0" in warning
    assert any(text.startswith("loss (read from the log with 2 decimals), values that") for text in report.coverage.covers)


@pytest.mark.parametrize("first", [0, 1])
def test_printed_loss_within_its_rounding_agrees_whatever_the_first_step(first: int) -> None:
    shown = with_loss(0.0, COARSE, first=first)
    assert find_disagreement(shown, shown.metrics[0]) is None
    # without known digits two decimals are no full precision
    other = with_loss(0.0, MetricOrigin(), first=first)
    assert find_disagreement(other, other.metrics[0]) is not None


def test_disagreement_tells_the_first_step_and_the_largest_difference() -> None:
    shown = with_loss(0.1, COARSE)
    found = find_disagreement(shown, shown.metrics[0])
    assert found is not None and (found.recorded, found.step) == ("loss", 5)
    assert found.largest == pytest.approx(0.1, abs=0.006) and isinstance(found, Disagreement)


def test_loss_of_rank_0_or_the_mean_over_ranks_agrees() -> None:
    ranks = tuple(RankRecord(rank, (StepRecord(0, loss=1.0 + rank), StepRecord(1, loss=2.0 + rank))) for rank in (0, 1))
    for values, agrees in (
        ((1.0, 2.0), True),
        ((1.5, 2.5), True),
        ((2.0, 3.0), False),
        ((math.nan, 2.0), True),
        ((1.0,), True),
    ):
        series = MetricSeries("loss", values, (), COARSE)
        assert (find_disagreement(Fingerprint(FINISHED, ranks, (series,)), series) is None) is agrees, values
    assert find_disagreement(Fingerprint(FINISHED, ranks), MetricSeries("accuracy", (9.0, 9.0))) is None


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (COARSE, "with 2 decimals"),
        (MetricOrigin(decimals=1, digits=2), "with 1 decimal"),
        (MetricOrigin(decimals=16, digits=17), "with all digits"),
        (MetricOrigin(decimals=0, digits=2), "in whole numbers"),
        (MetricOrigin("tensorboard", bits=24), "as float32"),
        (MetricOrigin("tensorboard", bits=8), "with 8 bits"),
    ],
)
def test_precision_in_words(origin: MetricOrigin, said: str) -> None:
    assert say_precision(origin) == said
