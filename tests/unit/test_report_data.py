"""What a report says: status, exit status, the sentences that matter, for each way that a bisection can end."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bisect_train.core.changes import Point
from bisect_train.core.fingerprint import Fingerprint, MetricSeries
from bisect_train.core.probe import ProbeResult, RunSettings
from bisect_train.core.question import Limits, Metric
from bisect_train.report import ChangePart
from bisect_train.search.terms import Answer, answer_budget
from tests.support.report_cases import (
    CULPRIT,
    HEALTHY,
    Solved,
    commit_space,
    config_space,
    make_fingerprint,
    make_question,
    noisy,
    play,
    step_change,
)


@pytest.fixture(scope="module")
def isolated() -> Solved:
    return play(step_change(CULPRIT), commit_space())


def test_report_isolated_names_what_how_sure_how_big(isolated: Solved) -> None:
    report = isolated.report(inside=(ChangePart("file", "model.py", "model.py"),))
    commit = isolated.space.changes[CULPRIT]
    assert (report.status, report.exit_status, report.kind_of_change) == ("isolated", 0, "worse")
    assert report.summary.startswith(f'Commit {commit.id[:8]} "use the fast path" makes loss worse: ')
    assert "(+0.4, sd 0.023, 1 + 1 fresh runs of 40 steps)" in report.summary
    told = " ".join(report.explanation)
    assert "It explains 100 % of the gap between the ends (exactly" in told
    assert "fresh runs, which the search had not seen, gave bit for bit what the ends give" in told
    assert "Without it the bad end is healthy; with it alone the good end is sick." in told
    assert [claim.status for claim in report.claims] == ["held"] * 3
    assert report.culprits[0].changes[0].id == commit.id and report.culprits[0].inside[0].id == "model.py"
    assert report.triage.look_first == ("model.py", "the forward pass (model or loss)")


def test_report_isolated_effect_carries_spread_and_runs(isolated: Solved) -> None:
    effect = isolated.report().culprits[0].effect
    assert effect is not None
    assert effect.bad - effect.good == pytest.approx(0.4)
    assert (effect.num_good, effect.num_bad, effect.spread_from) == (1, 1, "the ends' seeds")
    assert effect.good_sd is not None and effect.good_sd > 0
    assert (effect.share, effect.share_low, effect.share_high) == (1.0, 1.0, 1.0)


def test_report_isolated_divergence_is_of_parent_and_culprit_on_a_fresh_seed(isolated: Solved) -> None:
    report = isolated.report()
    assert report.divergence is not None and report.divergence.step == 5
    assert "version 13 of 24" in report.divergence_text and "version 14 of 24" in report.divergence_text
    assert [curve.role for curve in report.curves] == ["good", "bad", "parent", "culprit"]
    good, _, parent, _ = report.curves
    assert good.values == parent.values and len(good.values) == 40


def test_report_isolated_strip_and_probes(isolated: Solved) -> None:
    report = isolated.report()
    assert len(report.strip) == 24 and [part.number for part in report.strip if part.is_culprit] == [CULPRIT + 1]
    rows = report.probes
    assert len(rows) == len(isolated.probes)
    assert {row.purpose for row in rows} == {"ends", "search", "proof 1"}
    assert {row.verdict for row in rows} == {"good", "bad"}
    without = next(row for row in rows if row.what.startswith("bad end without"))
    assert without.what == f"bad end without {isolated.space.changes[CULPRIT].id[:8]}" and without.verdict == "good"
    between = next(row for row in rows if row.purpose == "search")
    assert between.what.startswith("version ") and between.subject


def test_report_isolated_reproduce_starts_in_a_copy(isolated: Solved) -> None:
    parts = isolated.report().reproduce
    assert parts[0].lines == ("git clone --quiet /home/ada/nano bisect-by-hand", "cd bisect-by-hand")
    assert parts[1].title.startswith("Just before it") and parts[2].title.startswith("With it")
    assert parts[2].lines[0] == f"git checkout --detach {isolated.space.changes[CULPRIT].id}"
    assert "/env/bin/python train.py --config=configs/train.yaml" in parts[2].lines[1]


def test_report_noisy_culprit_has_interval_and_p_values() -> None:
    report = noisy(0.1).report()
    assert report.status == "isolated"
    effect = report.culprits[0].effect
    assert effect is not None and effect.share_low is not None and effect.share_high is not None
    assert effect.share_low < 1.0 < effect.share_high and min(effect.num_good, effect.num_bad) >= 3
    assert "each claim was tested at an error of 0.25 %" in " ".join(report.explanation)
    assert all(claim.how.startswith("p = ") for claim in report.claims)
    assert "this may be chance" in report.divergence_text


def test_report_drift_names_no_culprit() -> None:
    solved = play(step_change(CULPRIT), commit_space(), max_probes=11)
    plan = replace(solved.plan, answer=replace(answer_budget(solved.plan, "a slow drift"), status="drift"))
    report = Solved(solved.question, solved.space, plan, solved.probes).report()
    assert (report.headline, report.exit_status, report.culprits) == ("No single change stands out", 3, ())


def test_report_result_that_answers_for_another_point_counts_there(isolated: Solved) -> None:
    """A proof's point whose variant another point has too gets no run of its own."""
    parent = Point(CULPRIT)
    kept, borrowed = [], []
    for probe in isolated.probes:
        is_parent = probe.spec["point"] == parent.to_text() and probe.spec["attempt"] == 1
        (borrowed if is_parent else kept).append(probe)
    variant = isolated.space.variant(parent).id
    elsewhere = [replace(probe, spec={**probe.spec, "point": "3+20", "variant": variant}) for probe in borrowed]
    report = replace(isolated, probes=kept + elsewhere).report()
    effect = report.culprits[0].effect
    assert effect is not None and effect.num_good == 1


def test_report_any_change_with_equal_loss_is_numerics_only() -> None:
    question = make_question(any_change=True, limits=Limits(max_seeds=3))

    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        is_new = point.holds(CULPRIT)
        return make_fingerprint(3.0 + (1e-9 if is_new else 0.0), seed=seed, salt="new" if is_new else "")

    report = play(behave, commit_space(), question).report()
    assert (report.status, report.kind_of_change) == ("isolated", "numerics_only")
    assert "the numbers change without a worsening" in report.summary


def test_report_pair_names_both_changes() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        is_bad = point.holds(CULPRIT) and point.holds(4)
        return make_fingerprint(3.4 if is_bad else 3.0, seed=seed, salt="bad" if is_bad else "")

    report = play(behave, commit_space()).report()
    assert report.status == "isolated" and len(report.culprits[0].changes) == 2
    assert " together make loss worse" in report.summary
    assert any("did not hold" in claim.status for claim in report.claims)
    assert report.culprits[0].conditions[0].startswith("the changes act together")


def test_report_budget_lists_candidates_and_blames_none() -> None:
    solved = play(step_change(CULPRIT), commit_space(), max_probes=11)
    plan = replace(solved.plan, answer=answer_budget(solved.plan, "the budget of 11 probes is spent"))
    report = Solved(solved.question, solved.space, plan, solved.probes).report()
    assert (report.status, report.exit_status) == ("budget", 3)
    assert "Budget spent: the budget of 11 probes is spent." in report.summary
    assert len(report.candidates) > 1 and report.culprits == ()
    assert any("none is blamed" in text for text in report.explanation)


def test_report_two_changes_that_each_are_enough_names_both_and_says_so() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        is_bad = point.holds(4) or point.holds(CULPRIT)
        return make_fingerprint(3.4 if is_bad else 3.0, seed=seed, salt="bad" if is_bad else "")

    report = play(behave, commit_space()).report()
    assert (report.status, report.exit_status, len(report.culprits)) == ("several", 0, 2)
    assert [culprit.necessary for culprit in report.culprits] == [False, False]
    assert any("enough by itself" in text for text in report.warnings)


def test_report_unfinished_says_so() -> None:
    report = play(step_change(CULPRIT), commit_space(), max_probes=3).report()
    assert not report.is_finished and report.summary.startswith("Not finished:") and report.exit_status == 3


def test_report_fixed_before_keeps_the_reason() -> None:
    solved = play(step_change(CULPRIT), commit_space(), max_probes=9)
    plan = replace(solved.plan, answer=Answer("fixed_before", "the merge base of the two ends is bad already"))
    report = Solved(solved.question, solved.space, plan, solved.probes).report()
    assert report.exit_status == 4 and report.summary.startswith("Fixed before: the merge base")


def test_report_culprit_that_cannot_be_undone_says_so() -> None:
    commits = commit_space()
    commits.unbuildable = {Point(24, (), (CULPRIT,)): "conflict in model.py"}
    report = play(step_change(CULPRIT), commits).report()
    assert report.culprits[0].necessary is None and report.culprits[0].sufficient is True
    assert report.culprits[0].conditions == ("it could not be left out of the bad end (conflict in model.py)",)
    pattern = r"the two sides agree: \d+ tested versions before it good, \d+ tested versions from it on bad"
    assert re.search(pattern, report.explanation[-1])


@pytest.mark.parametrize(("bad", "status", "exit_status"), [(3.4, "isolated", 5), (3.0, "no_regression", 0)])
def test_report_check_exit_status(bad: float, status: str, exit_status: int) -> None:
    configs, question = config_space()

    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        return make_fingerprint(bad if point.holds(1) else 3.0, seed=seed)

    report = play(behave, configs, question).report()
    assert (report.status, report.exit_status) == (status, exit_status)


def test_report_check_that_cannot_tell_is_status_3() -> None:
    configs, question = config_space()

    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        own = sum(ord(letter) * (idx + 1) for idx, letter in enumerate(f"{point.to_text()}/{seed}/{repeat}"))
        return make_fingerprint(3.005 if point.holds(1) else 3.0, seed=own, salt=point.to_text())

    report = play(behave, configs, question).report()
    assert (report.exit_status, report.headline) == (3, "Cannot tell")


def test_report_check_candidates_with_separated_ends_is_status_5() -> None:
    configs, question = config_space(8)
    solved = play(step_change(1), configs, question, max_probes=9)
    plan = replace(solved.plan, answer=answer_budget(solved.plan, "spent"))
    assert Solved(question, configs, plan, solved.probes).report().exit_status == 5


def test_report_check_reproduce_gives_config_by_hand() -> None:
    configs, question = config_space()
    parts = play(step_change(1), configs, question).report().reproduce
    text = "\n".join(parts[2].lines)
    assert "cp configs/b.yaml by-hand.yaml" in text and "without these changes" in text and "optim.key2: 2 -> 3" in text
    assert "--config=by-hand.yaml" in text


def test_report_coverage_says_what_it_cannot_see() -> None:
    report = play(step_change(2), commit_space(4)).report()
    hidden = " ".join(report.coverage.cannot_see)
    assert "anything after step 40" in hidden and "bugs between ranks" in hidden
    assert "validation loss: no metric was given for it" in hidden and "it ran on CPU" in hidden
    assert "the first 40 optimizer steps of the run" in report.coverage.covers


def test_report_warnings_of_probes_come_once() -> None:
    def behave(point: Point, seed: int, repeat: int) -> ProbeResult:
        shown = make_fingerprint(3.4 if point.holds(2) else 3.0, seed=seed, salt=str(point.holds(2)))
        return ProbeResult("", shown, warnings=("2 files are Git LFS pointers",))

    report = play(behave, commit_space(4)).report(warnings=("slow disk", "slow disk"))
    assert report.warnings == ("slow disk", "2 files are Git LFS pointers")


def test_report_metric_from_the_log_uses_its_steps_for_curves() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        level = 3.4 if point.holds(2) else 3.0
        series = MetricSeries("val_loss", (level + 1, level + seed * 0.01), (0, 20))
        return Fingerprint(HEALTHY, make_fingerprint(level, seed=seed).ranks, (series,))

    settings = RunSettings(python="/env/bin/python")
    question = make_question(metric=Metric("val_loss", "last"), settings=settings)
    report = play(behave, commit_space(4), question).report()
    assert report.curves[0].steps == (0, 20)
    assert not any("validation" in text for text in report.coverage.cannot_see)
