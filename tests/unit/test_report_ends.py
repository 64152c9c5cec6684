"""What a report says of ends that fail, cannot be run, cannot be told apart, or are judged by a command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bisect_train.core.changes import Point
from bisect_train.core.fingerprint import EndingKind, Fingerprint, JudgeResult, MetricSeries
from bisect_train.core.probe import ProbeResult, RunSettings
from bisect_train.core.question import Metric
from bisect_train.core.verdict import Criterion
from tests.support.report_cases import (
    CULPRIT,
    commit_space,
    make_failure,
    make_fingerprint,
    make_question,
    noisy,
    play,
    step_change,
)


def test_report_good_end_with_missing_module_names_end_and_remedy_and_blames_nobody() -> None:
    solved = play(lambda p, s, r: make_failure("ModuleNotFoundError: No module named 'wandb'", missing="wandb"), commit_space())
    report = solved.report()
    good = solved.space.commits.good
    assert (report.status, report.exit_status, report.culprits) == ("failed", 1, ())
    assert report.summary == f"The good end ({good[:8]}) could not be run: ModuleNotFoundError: No module named 'wandb'."
    remedy = report.explanation[0]
    assert "/env/bin/python -m pip install wandb" in remedy
    assert "`stubs:` in the recipe" in remedy and "choose a later good end" in remedy
    assert "Nobody is blamed" in report.explanation[1]
    assert "No module named 'wandb'" in report.log_tail


@pytest.mark.parametrize(
    ("kind", "message", "said", "remedy"),
    [
        (EndingKind.CANNOT_START, "the command could not be started: No such file: 'trian.py'", "trian.py", "must exist"),
        (EndingKind.TIMEOUT, "stopped at the time limit of 600 s; no step for 590 s", "time limit of 600 s", "--timeout S"),
        (EndingKind.OUT_OF_MEMORY, "CUDA out of memory", "out of memory", "--parallel N"),
        (EndingKind.CRASHED, "KeyError: 'lr'", "KeyError: 'lr'", "by hand"),
    ],
)
def test_report_failed_good_end_says_why_and_what_to_do(kind: EndingKind, message: str, said: str, remedy: str) -> None:
    report = play(lambda p, s, r: make_failure(message, kind=kind), commit_space()).report()
    assert report.exit_status == 1
    assert report.summary.startswith("The good end (") and said in report.summary
    assert remedy in report.explanation[0]


def test_report_without_a_recorder_at_either_end_is_bad_input() -> None:
    report = play(
        lambda p, s, r: make_failure("the recorder was not loaded", kind=EndingKind.NO_RECORDER), commit_space()
    ).report()
    assert report.exit_status == 2
    assert "neither fails" in report.summary and "The recorder was not loaded." in report.summary
    assert "--judge" in report.explanation[0]


def test_report_failed_bad_end_is_named_bad() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint | ProbeResult:
        if point.prefix == 24:
            return make_failure("no tree", kind=EndingKind.CANNOT_START)
        return make_fingerprint(3.0, seed=seed)

    report = play(behave, commit_space()).report()
    assert report.summary.startswith("The bad end (") and "choose an earlier bad end" in report.explanation[0]


def test_report_end_that_cannot_be_built_gives_the_reason() -> None:
    broken = commit_space()
    broken.unbuildable = {Point(0): "an object of the tree is missing"}
    report = play(step_change(CULPRIT), broken).report()
    assert report.status == "failed" and "an object of the tree is missing" in report.summary


def test_report_metric_that_nobody_shows_lists_those_seen() -> None:
    question = make_question(metric=Metric("val_loss"))
    report = play(step_change(CULPRIT), commit_space(), question).report()
    assert (report.status, report.exit_status) == ("failed", 2)
    assert "Neither end shows a value of val_loss" in report.summary
    assert "It showed these: loss, grad_norm" in report.summary and "--metric NAME" in report.explanation[0]


def test_report_crash_counts_fresh_runs_and_names_the_exception() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint | ProbeResult:
        if point.holds(CULPRIT):
            return make_failure("RuntimeError: shapes do not match", steps=3, seed=seed)
        return make_fingerprint(3.0, seed=seed)

    report = play(behave, commit_space()).report()
    assert (report.status, report.kind_of_change) == ("isolated", "crash")
    assert "makes training fail (RuntimeError: shapes do not match): 2 of 2 fresh runs with it" in report.summary
    assert "0 of 2 without" in report.summary
    effect = report.culprits[0].effect
    assert effect is not None and (effect.good, effect.bad, effect.share) == (0.0, 1.0, 1.0)
    assert report.triage.category == "stopped" and report.triage.stage == "ending"


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        (EndingKind.TIMEOUT, "timeout: hang", "hang"),
        (EndingKind.TIMEOUT, "timeout: slow", "slower"),
        (EndingKind.OUT_OF_MEMORY, "OutOfMemoryError", "memory"),
    ],
)
def test_report_symptom_gives_kind_of_change(kind: EndingKind, message: str, expected: str) -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint | ProbeResult:
        return make_failure(message, kind=kind) if point.holds(2) else make_fingerprint(3.0, seed=seed)

    assert play(behave, commit_space(4)).report().kind_of_change == expected


def test_report_hang_says_where_each_rank_waits() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint | ProbeResult:
        if not point.holds(2):
            return make_fingerprint(3.0, seed=seed)
        stacks = (("stacks-rank1.txt", "Thread 1\n    barrier (dist.py:3)\n    main (train.py:9)\n"),)
        return replace(make_failure("timeout: hang", kind=EndingKind.TIMEOUT), stacks=stacks)

    evidence = play(behave, commit_space(4)).report().triage.evidence
    assert "stacks-rank1.txt waits at: barrier (dist.py:3)" in evidence


def test_report_nan_is_called_nan() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        return make_fingerprint(float("nan") if point.holds(2) else 3.0, seed=seed)

    report = play(behave, commit_space(4)).report()
    assert report.kind_of_change == "nan" and "makes loss NaN or infinite" in report.summary


def test_report_bitwise_equal_ends_is_no_regression() -> None:
    report = play(lambda p, s, r: make_fingerprint(3.0, seed=s), commit_space()).report()
    assert (report.status, report.exit_status, report.kind_of_change) == ("no_regression", 4, None)
    assert "both ends are bitwise equal on 3 seeds, over 40 steps on 1 rank" in report.summary
    assert report.null_probability == 1.0 and report.culprits == ()


def test_report_ends_that_do_not_separate_say_bound_and_what_helps() -> None:
    report = noisy(0.02).report()
    assert (report.status, report.exit_status) == ("not_reproduced", 4)
    assert report.headline == "Not reproduced" and "could still be worse by up to" in report.summary
    assert "(sd " in report.summary and "8 runs" in report.summary
    assert "--steps 160" in report.explanation[0] and "--seeds 16" in report.explanation[0]
    assert report.null_probability is None


def test_report_better_bad_end_is_no_regression_and_better() -> None:
    report = play(step_change(CULPRIT, good=3.4, bad=3.0), commit_space()).report()
    assert (report.status, report.kind_of_change) == ("no_regression", "better")


def test_report_flaky_bad_end_is_not_reproduced() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint | ProbeResult:
        is_sick = point.holds(CULPRIT) and seed == 0
        return make_failure("RuntimeError: boom") if is_sick else make_fingerprint(3.0, seed=seed)

    report = play(behave, commit_space()).report()
    assert report.status == "not_reproduced" and "the bad end fails in 1 of" in report.summary


def test_report_judge_that_calls_both_ends_good_is_no_regression() -> None:
    settings = RunSettings(python="/env/bin/python", judge=("python", "judge.py"))

    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        return replace(make_fingerprint(3.0, seed=seed), judge=JudgeResult(0))

    report = play(behave, commit_space(), make_question(settings=settings)).report()
    assert report.status == "no_regression" and "the judging command calls both ends good" in report.summary


def test_report_judge_names_the_culprit_by_its_verdicts() -> None:
    settings = RunSettings(python="/env/bin/python", judge=("python", "judge.py"))

    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        return replace(make_fingerprint(3.0, seed=seed), judge=JudgeResult(1 if point.holds(CULPRIT) else 0))

    report = play(behave, commit_space(), make_question(settings=settings)).report()
    assert (report.status, report.kind_of_change) == ("isolated", "worse")
    assert "makes the judging command say bad: 2 of 2 fresh runs with it, 0 of 2 without" in report.summary


def test_report_asked_for_a_symptom_that_does_not_show_says_so() -> None:
    report = play(step_change(CULPRIT), commit_space(), make_question(criterion=Criterion.SYMPTOM)).report()
    assert report.status == "not_reproduced" and "the bad end does not fail in 8 runs" in report.summary


@pytest.mark.parametrize("is_fine", [True, False])
def test_report_by_the_exact_criterion_says_what_counts_as_equal(is_fine: bool) -> None:
    """An equal metric counts beside the bits where it is fine enough: nearly every seed shows a value of its own."""

    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        salt = "bad" if point.holds(CULPRIT) else ""
        shown = make_fingerprint(3.0, seed=seed, salt=salt)
        values = (0.5 + 0.01 * seed * is_fine + 0.1 * point.holds(CULPRIT),)
        return replace(shown, metrics=(MetricSeries("acc", values, (0,)),))

    question = make_question(criterion=Criterion.EXACT, metric=Metric("acc", "last", "lower"))
    report = play(behave, commit_space(), question).report()
    assert report.status == "isolated"
    told = " ".join(report.ends_story)
    assert "Judged exactly: a run counts for an end where all that was recorded is equal bit for bit, on the same seed." in told
    assert ("acc equal to one end to the last digit counts for that end, too, but weighs less." in told) is is_fine


def test_report_by_other_criteria_does_not_speak_of_bits_that_count() -> None:
    assert not any("Judged exactly" in text for text in play(step_change(CULPRIT), commit_space()).report().ends_story)
