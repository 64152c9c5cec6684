"""Sentences that were false or unclear to a newcomer: what a report must not claim, and what it says instead."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from bisect_train.changes.space import ChangeSpace
from bisect_train.core.changes import DataLink, Point
from bisect_train.core.fingerprint import EndingKind, Event, Fingerprint, JudgeResult, MetricSeries
from bisect_train.core.probe import ProbeResult, Rung, RunSettings
from bisect_train.core.question import Limits, Metric
from bisect_train.report import ReportData
from bisect_train.report.case import make_case
from bisect_train.report.conditions import list_conditions, say_states
from bisect_train.report.standing import render_standing
from bisect_train.report.words import say_count, stands_out, tidy_counts
from bisect_train.search.terms import Answer, Phase
from bisect_train.verdict.end_terms import EndsStatus
from bisect_train.verdict.proof import ClaimKind, ClaimResult, ClaimStatus
from tests.support.report_cases import (
    CULPRIT,
    Behaviour,
    Solved,
    commit_space,
    config_space,
    make_failure,
    make_fingerprint,
    make_question,
    noisy,
    play,
    step_change,
)


@pytest.fixture(scope="module")
def isolated() -> Solved:
    return play(step_change(CULPRIT), commit_space())


def with_answer(solved: Solved, answer: Answer) -> ReportData:
    return replace(solved, plan=replace(solved.plan, answer=answer)).report()


# ---- first difference ------------------------------------------------------------------------------------------------


def logging(bad_values: tuple[float, ...]) -> Behaviour:
    """Runs that are equal in all that the recorder sees; the log of the bad end shows `bad_values`."""

    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        values = bad_values if point.holds(2) else (3.0, 2.0)
        return replace(make_fingerprint(3.0, seed=seed), metrics=(MetricSeries("val_loss", values, (0, 20)[: len(values)]),))

    return behave


def test_first_difference_names_a_metric_of_the_log() -> None:
    text = play(logging((3.0, 2.5)), commit_space(4)).report().divergence_text
    assert "first differ at step 20 in a metric of the log - val_loss: 2.0 against 2.5." in text


def test_first_difference_does_not_claim_equality_when_one_log_shows_less() -> None:
    text = play(logging(()), commit_space(4)).report().divergence_text
    assert "in everything that was recorded" not in text and "2 values of val_loss in good end, none in bad end" in text


# ---- conditions ------------------------------------------------------------------------------------------------------


def failed_alone(solved: Solved, *, how: str, jump: float | None, phase: Phase = Phase.DONE) -> str:
    """Return what is said of a culprit whose last claim failed."""
    answer = solved.plan.answer
    assert answer is not None
    culprit = answer.culprits[0]
    claims = tuple(
        ClaimResult(item.claim, ClaimStatus.FAILED, 10, how=how, jump=jump, reason="not shown")
        if item.claim.kind is ClaimKind.BREAKS
        else item
        for item in culprit.claims
    )
    changed = replace(culprit, claims=claims, is_sufficient=False)
    plan = replace(solved.plan, phase=phase, answer=replace(answer, culprits=(changed,)))
    return replace(solved, plan=plan).report().culprits[0].conditions[0]


def test_condition_small_jump_alone_is_not_called_healthy(isolated: Solved) -> None:
    said = failed_alone(isolated, how="permutation", jump=0.15)
    assert said == "alone on the good end it makes only 0.15 of the 0.4 gap (less than half)"
    assert "could not be shown (not shown)" in failed_alone(isolated, how="permutation", jump=0.3)
    assert "makes nothing of the 0.4 gap" in failed_alone(isolated, how="value", jump=-0.01)


@pytest.mark.parametrize(("how", "jump"), [("bitwise", None), ("symptom", None)])
def test_condition_bits_or_symptom_alone_leaves_the_run_healthy(isolated: Solved, how: str, jump: float | None) -> None:
    assert failed_alone(isolated, how=how, jump=jump).startswith("alone on the good end it leaves the run healthy")


def test_condition_stays_as_it_is_while_a_partner_is_searched(isolated: Solved) -> None:
    said = failed_alone(isolated, how="permutation", jump=0.15, phase=Phase.PARTNER)
    assert said.startswith("alone on the good end it leaves the run healthy")


def test_states_are_healthy_and_sick_only_where_one_is_ill() -> None:
    assert say_states("worse") == say_states("crash") == say_states(None) == ("healthy", "sick")
    for kind in ("better", "numerics_only", "data_order"):
        assert say_states(kind) == ("like the good end", "like the bad end")


def test_report_numerics_only_calls_nothing_sick() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        is_new = point.holds(CULPRIT)
        return make_fingerprint(3.0 + (1e-9 if is_new else 0.0), seed=seed, salt="new" if is_new else "")

    report = play(behave, commit_space(), make_question(any_change=True, limits=Limits(max_seeds=3))).report()
    assert report.kind_of_change == "numerics_only"
    told = " ".join([*report.explanation, *(claim.text for claim in report.claims)])
    assert "sick" not in told and "healthy" not in told
    assert "Without it the bad end is like the good end; with it alone the good end is like the bad end." in told
    assert report.claims[0].text == "just before it the run is like the good end, with it the run is like the bad end"


@pytest.mark.parametrize(("how", "reason"), [("permutation", "10 + 10 runs"), ("bitwise", "other bits")])
def test_conditions_of_a_better_end_speak_of_no_illness(isolated: Solved, how: str, reason: str) -> None:
    answer = isolated.plan.answer
    assert answer is not None
    case = make_case(isolated.question, cast(ChangeSpace, isolated.space), isolated.plan, isolated.probes)
    culprit = answer.culprits[0]
    claims = tuple(replace(item, status=ClaimStatus.FAILED, how=how, jump=None, reason=reason) for item in culprit.claims)
    culprit = replace(culprit, claims=claims, is_necessary=False, is_sufficient=False)
    said = " ".join(list_conditions(case, culprit, "better"))
    assert not any(word in said for word in ("heal", "sick", "bad,", "worse"))
    assert "leaves the run like the good end" in said
    assert "heal" in " ".join(list_conditions(case, culprit, "worse"))


# ---- ends that cannot be used ----------------------------------------------------------------------------------------

JUDGE = RunSettings(python="/env/bin/python", judge=("python", "judge.py"))


def judging(good: int | None, bad: int) -> Behaviour:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        status = bad if point.holds(2) else good
        shown = make_fingerprint(3.0, seed=seed)
        judge = JudgeResult(status, "reads out/eval.json\n\nKeyError: 'acc'\n") if status is not None else None
        return replace(shown, judge=judge)

    return behave


@pytest.mark.parametrize(
    ("statuses", "said", "remedy"),
    [
        ((2, 1), "calls the good end (", "must exit with status 0 at the good end"),
        ((125, 1), "calls the good end (", "must exit with status 0 at the good end"),
        ((0, 125), "calls the bad end (", "with a status from 1 to 124 at the bad end"),
        ((None, 1), "did not run at the good end (", "must exit with status 0 at the good end"),
    ],
)
def test_failed_judge_is_named_and_not_the_program(statuses: tuple[int | None, int], said: str, remedy: str) -> None:
    report = play(judging(*statuses), commit_space(4), make_question(settings=JUDGE)).report()
    assert report.status == "failed"
    assert report.summary.startswith("The judging command `python judge.py` " + said)
    assert "could not be run" not in report.summary and remedy in report.explanation[0]
    if statuses[0] is not None:
        assert report.log_tail == "reads out/eval.json\nKeyError: 'acc'"
        status = next(status for status in statuses if status != 0)
        word = "untestable" if status == 125 else "bad"
        assert report.summary.endswith(f" {word} (status {status}).")


def test_judge_does_not_stand_for_a_program_that_crashed() -> None:
    question = make_question(settings=JUDGE)
    report = play(lambda p, s, r: make_failure("KeyError: 'lr'"), commit_space(4), question).report()
    assert "The good end (" in report.summary and "KeyError: 'lr'" in report.summary


@pytest.mark.parametrize(
    ("message", "has_remedy"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'", True),
        ("RuntimeError: could not open data: No such file or directory", True),
        ("KeyError: 'lr'", False),
    ],
)
@pytest.mark.parametrize("kind", [EndingKind.CRASHED, EndingKind.CANNOT_START])
def test_failed_end_that_misses_a_file_points_to_untracked_data(message: str, has_remedy: bool, kind: EndingKind) -> None:
    report = play(lambda p, s, r: make_failure(message, kind=kind), commit_space(4)).report()
    remedy = "A checkout holds the tracked files only: name untracked data under `data: link:` in a recipe"
    assert (remedy in report.explanation[0]) is has_remedy


def test_by_hand_makes_the_folder_of_a_link_once() -> None:
    links = (DataLink("/d/x", "data/x"), DataLink("/d/y", "data/y"), DataLink("/d/w", "weights"), DataLink("/d/t.py", "t.py"))
    question = make_question(settings=RunSettings(python="/env/bin/python", links=links))
    lines = play(step_change(2), commit_space(4), question).report().reproduce[0].lines
    assert lines[2:] == ("mkdir -p data", "ln -s /d/x data/x", "ln -s /d/y data/y", "ln -s /d/w weights", "cp /d/t.py t.py")


# ---- what is left ----------------------------------------------------------------------------------------------------


def test_stands_out_needs_twice_the_next_probability() -> None:
    assert stands_out([0.4, 0.2, 0.1]) and stands_out([0.3])
    assert not stands_out([0.34, 0.33, 0.33]) and not stands_out([0.39, 0.2]) and not stands_out([])


@pytest.mark.parametrize(("shares", "stands"), [((0.334, 0.333, 0.333), False), ((0.6, 0.2, 0.2), True)])
def test_candidates_name_a_most_probable_one_only_if_it_stands_out(
    isolated: Solved, shares: tuple[float, ...], stands: bool
) -> None:
    report = with_answer(isolated, Answer("budget", "spent", candidates=tuple(enumerate(shares))))
    assert ("most probable is commit" in report.summary) is stands
    assert ("3 of 24 changes could be the one; none stands out." in report.summary) is not stands


# ---- sureness --------------------------------------------------------------------------------------------------------


def inert(gap: float, *, min_effect: float | None = 0.1) -> Solved:
    """Runs that no seed changes."""

    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        level = 3.0 + (gap if point.holds(CULPRIT) else 0.0)
        return make_fingerprint(level, seed=0, salt=str(level))

    return play(behave, commit_space(), make_question(min_effect=min_effect))


def test_inert_seeds_give_no_error_level_and_the_caveat_comes_first() -> None:
    report = inert(0.4).report()
    assert report.status == "isolated"
    assert report.explanation[0].startswith("Every seed gives the same run, so this rests on one run of each state")
    assert "chance cannot be told from an effect" in report.explanation[0]
    assert "tested at an error of" not in " ".join(report.explanation)


def test_inert_seeds_that_jump_without_the_ends_bits_give_no_error_level() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        level = 3.0 + (0.4 if point.holds(CULPRIT) else 0.0) + 1e-6 * sum(point.holds(idx) for idx in range(24))
        return make_fingerprint(level, seed=0, salt=str(level))

    told = " ".join(play(behave, commit_space(), make_question(min_effect=0.1)).report().explanation)
    assert "tested at an error of" not in told and "there is no error level to give" in told


def test_inert_seeds_without_regression_say_so_and_ask_for_no_seeds() -> None:
    report = inert(0.01).report()
    assert report.status == "no_regression" and report.explanation[0].startswith("Every seed gives the same run")
    assert "--seeds" not in report.explanation[1]


def test_inert_seeds_that_cannot_tell_ask_for_min_effect_and_not_for_seeds() -> None:
    report = inert(0.4, min_effect=None).report()
    assert report.summary.startswith("Not reproduced: over 40 steps on 1 rank every seed gives the same run")
    assert "--min-effect" in report.summary and "--seeds" not in " ".join([report.summary, *report.explanation])
    whole = replace(inert(0.01).question, rung=Rung(None, 1))
    text = replace(inert(0.01), question=whole).report().explanation[-1]
    assert text == "What would show more: another metric (`--metric grad_norm`, or one of your log)."


def test_too_few_seeds_are_not_called_inseparable_ends() -> None:
    solved = noisy(0.02)
    assert solved.plan.ends.status is EndsStatus.UNCLEAR
    smaller = replace(solved.plan.ends, gap=0.55, min_effect=0.1)
    report = replace(solved, plan=replace(solved.plan, ends=smaller)).report()
    assert "the bad end looks worse by 0.55, but 8 + 8 seeds are too few to be sure" in report.summary
    assert "--seeds 16" in report.summary and "do not separate" not in report.summary
    assert any("The bad end looks worse by 0.55" in text for text in report.ends_story)
    larger = replace(solved.plan.ends, gap=0.05, min_effect=0.1)
    report = replace(solved, plan=replace(solved.plan, ends=larger)).report()
    assert "the ends do not separate" in report.summary


# ---- counts and names ------------------------------------------------------------------------------------------------


def test_counts_of_one_are_singular() -> None:
    one = play(step_change(0), commit_space(1), max_probes=8)
    assert "Of 1 change, " in with_answer(one, Answer("budget", "spent", candidates=((0, 0.9),))).summary
    text = render_standing(replace(one.plan, posterior=(1.0,)), one.space, num_probes=1)  # type: ignore[arg-type]
    assert "1 of 1 change holds 99 %" in text
    assert say_count(1, "shifted one") == "1 shifted one"
    assert tidy_counts("the bad end fails in 1 of 2 runs, 1 of them alike, the good end in 0 of 2") == (
        "the bad end fails in 1 of 2 runs, the good end in 0 of 2"
    )


def test_flaky_end_is_not_alike_to_itself() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint | ProbeResult:
        is_sick = point.holds(CULPRIT) and seed == 0 and repeat == 0
        return make_failure("RuntimeError: boom") if is_sick else make_fingerprint(3.0, seed=seed)

    summary = play(behave, commit_space()).report().summary
    assert "the bad end fails in 1 of" in summary and "1 of them alike" not in summary


def test_config_keys_are_named_once() -> None:
    configs, question = config_space()
    report = play(step_change(1), configs, question).report()
    said = [row.what + " " + row.subject for row in report.probes] + [part.label for part in report.strip]
    said += [claim.healthy + claim.sick for claim in report.claims] + [report.divergence_text]
    assert any("optim.key1" in text for text in said)
    assert not any(f"optim.key{i} optim.key{i}" in text for text in said for i in range(3))


def test_help_suggests_no_metric_of_the_recorder_without_steps() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        own = sum(ord(letter) * (idx + 1) for idx, letter in enumerate(f"{point.to_text()}/{seed}"))
        shown = make_fingerprint(3.0, seed=own)
        return Fingerprint(shown.ending, (), (MetricSeries("val_loss", (shown.ranks[0].steps[-1].loss or 0.0,)),))

    report = play(behave, commit_space(4), make_question(metric=Metric("val_loss", "last"))).report()
    told = " ".join(report.explanation)
    assert "What would show more" in told and "grad_norm" not in told
    assert "--metric grad_norm" in " ".join(noisy(0.02).report().explanation)


# ---- shared files ----------------------------------------------------------------------------------------------------


def touching(written: dict[str, list[str]], read: list[str]) -> Behaviour:
    """Runs of which the good and the bad end write some paths (by end) and all read others."""

    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        is_bad = point.holds(2)
        shown = make_fingerprint(3.4 if is_bad else 3.0, seed=seed, salt=str(is_bad))
        event = Event("outside_files", None, {"written": written["bad" if is_bad else "good"], "read": read})
        return replace(shown, ranks=(replace(shown.ranks[0], events=(event,)),))

    return behave


def test_shared_files_are_warned_of_once_with_the_way_out() -> None:
    cache = [f"/home/ada/cache/{idx}" for idx in range(5)]
    warnings = play(touching({"good": cache, "bad": []}, cache), commit_space(4)).report().warnings
    assert len(warnings) == 1
    assert warnings[0].startswith(
        "probes share /home/ada/cache/0, /home/ada/cache/1, /home/ada/cache/2 and 2 more outside their checkouts: "
    )
    assert "make it private (`private:` in the recipe for the variable that names its folder)" in warnings[0]


def test_files_that_are_only_read_or_only_of_one_probe_are_no_warning() -> None:
    assert play(touching({"good": [], "bad": []}, ["/data/train.bin"]), commit_space(4)).report().warnings == ()
    solved = play(touching({"good": [], "bad": []}, []), commit_space(4))
    alone = solved.probes[0]
    event = Event("outside_files", None, {"written": ["/tmp/once"]})
    ranks = (replace(alone.result.fingerprint.ranks[0], events=(event, event)),)
    fingerprint = replace(alone.result.fingerprint, ranks=ranks)
    changed = replace(alone, result=replace(alone.result, fingerprint=fingerprint))
    assert replace(solved, probes=[changed, *solved.probes[1:]]).report().warnings == ()
