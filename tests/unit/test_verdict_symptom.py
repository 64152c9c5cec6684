"""A symptom of triage as the criterion: what one run says, and what the ends say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bisect_train.core.changes import GOOD_END, Point
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.question import Metric, Question
from bisect_train.core.verdict import Criterion
from bisect_train.verdict.end_terms import EndRules, EndsStatus
from bisect_train.verdict.ends import prove_ends
from bisect_train.verdict.outcome import DERIVED_METRICS, Observation, OutcomeKind, judge_outcome, recorded_metric
from tests.support.report_cases import make_question
from tests.support.triage_runs import overlapping, two_ranks

NAME = "overlapping_samples"
RULES = EndRules(Metric(), Criterion.SYMPTOM, symptom=NAME)


def judged(fingerprint: Fingerprint, symptom: str = NAME):  # type: ignore[no-untyped-def]
    return judge_outcome(fingerprint, Metric(), symptom=symptom)


def observed(point: Point, fingerprints: list[Fingerprint]) -> list[Observation]:
    return [Observation(point, idx, 0, 0, -1, judged(item)) for idx, item in enumerate(fingerprints)]


def test_outcome_of_a_healthy_run_with_the_symptom_is_a_failure_of_that_name() -> None:
    outcome = judged(two_ranks(overlapping))
    assert (outcome.kind, outcome.signature) == (OutcomeKind.FAILED, "triage: overlapping_samples")
    assert outcome.reason.startswith("overlapping_samples: ") and outcome.digest


def test_outcome_of_a_run_without_it_is_measured() -> None:
    assert judged(two_ranks()).kind is OutcomeKind.MEASURED
    assert judge_outcome(two_ranks(overlapping), Metric()).kind is OutcomeKind.MEASURED


def test_outcome_of_a_crash_keeps_its_own_signature() -> None:
    crashed = two_ranks(num_steps=2, ending=Ending(EndingKind.CRASHED, "KeyError", "KeyError: 'x'", exit_status=1))
    assert judged(crashed).signature == "KeyError"


def test_outcome_of_a_hang_is_the_symptom_that_was_asked_about() -> None:
    stuck = two_ranks(num_steps=3, ending=Ending(EndingKind.TIMEOUT, "timeout: hang", "no step for 55 s"))
    assert judged(stuck, "hang").signature == "triage: hang"
    assert judged(stuck).signature == "timeout: hang"


def test_outcome_of_a_run_that_could_not_show_it_is_untestable() -> None:
    alone = judged(two_ranks(num_ranks=1))
    assert alone.kind is OutcomeKind.UNTESTABLE and "--ranks 2" in alone.reason
    run = two_ranks()
    ranks = tuple(replace(rank, steps=tuple(replace(step, samples=None) for step in rank.steps)) for rank in run.ranks)
    blind = judged(replace(run, ranks=ranks))
    assert blind.kind is OutcomeKind.UNTESTABLE and "samples" in blind.reason


def test_ends_separate_where_the_bad_end_shows_it_on_every_seed() -> None:
    good = observed(GOOD_END, [two_ranks(seed_idx=idx) for idx in range(3)])
    bad = observed(Point(5), [two_ranks(overlapping, seed_idx=idx) for idx in range(3)])
    ends = prove_ends(good, bad, RULES)
    assert (ends.status, ends.signature) == (EndsStatus.SEPARATED, "triage: overlapping_samples")


def test_ends_of_a_bad_end_that_fails_otherwise_are_not_told_apart_by_that() -> None:
    crash = Ending(EndingKind.CRASHED, "KeyError", "KeyError: 'x'", exit_status=1)
    good = observed(GOOD_END, [two_ranks(seed_idx=idx) for idx in range(3)])
    bad = observed(Point(5), [two_ranks(seed_idx=idx, num_steps=1, ending=crash) for idx in range(3)])
    ends = prove_ends(good, bad, RULES)
    assert ends.status is EndsStatus.FLAKY and "another way" in ends.reason


def test_ends_of_a_bad_end_that_never_shows_it_say_what_could_be_missed() -> None:
    good = observed(GOOD_END, [two_ranks()])
    bad = observed(Point(5), [two_ranks(seed_idx=idx) for idx in range(8)])
    ends = prove_ends(good, bad, RULES)
    assert ends.status is EndsStatus.UNCLEAR and "does not show overlapping_samples in 8 runs" in ends.reason


def test_coverage_is_a_metric_of_one_value_and_higher_is_better() -> None:
    metric = recorded_metric("coverage")
    healthy, bad = (judge_outcome(run, metric).value for run in (two_ranks(), two_ranks(overlapping)))
    assert healthy == 1.0 and bad is not None and bad < 0.7
    assert metric.better == "higher"


@pytest.mark.parametrize("name", DERIVED_METRICS)
def test_derived_metrics_have_a_value_for_a_healthy_run(name: str) -> None:
    outcome = judge_outcome(two_ranks(), recorded_metric(name))
    assert outcome.kind is OutcomeKind.MEASURED and outcome.value is not None


def test_question_keeps_its_symptom_and_reads_questions_without_one() -> None:
    question = make_question(symptom=NAME)
    data = question.to_json()
    assert Question.of_json(data).symptom == NAME
    del data["symptom"], data["limits"]["second_look"]
    old = Question.of_json(data)
    assert old.symptom == "" and old.limits.second_look
