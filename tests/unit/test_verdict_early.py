"""When a run may be stopped early, what it then counts as, and that nobody takes it for a whole run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from bisect_train.coordinator.early import EarlyVerdicts, count_early
from bisect_train.coordinator.trust import is_reusable
from bisect_train.coordinator.warmth import Warmth
from bisect_train.core.changes import Point, Variant
from bisect_train.core.early import CurveWatch, Shown, watch_ranks
from bisect_train.core.fingerprint import EarlyStop, Ending, EndingKind, Fingerprint, RankRecord, StepRecord
from bisect_train.core.probe import (
    MachineFacts,
    MetricPattern,
    ProbeResult,
    ProbeSpec,
    RestartSettings,
    Rung,
    RunSettings,
)
from bisect_train.core.question import Limits, Metric, Question, Range
from bisect_train.core.verdict import Criterion, VerdictKind
from bisect_train.search.terms import Phase, Plan, Request, Rules
from bisect_train.store.codec import pack_result, unpack_result
from bisect_train.store.contract import StoredProbe
from bisect_train.store.memory import MemoryStore
from bisect_train.verdict.early_rules import (
    EndCurve,
    decisive_idx,
    fit_curves,
    fit_rho,
    make_early_rules,
    smooth,
    smooth_with_edges,
    why_not_early,
)
from bisect_train.verdict.end_terms import EndRules, Ends, EndsStatus
from bisect_train.verdict.evidence import MAX_NATS, judge_variant
from bisect_train.verdict.outcome import Observation, OutcomeKind, judge_outcome
from tests.support.early_curves import read_curves
from tests.support.observations import LOSS, measured, separated_ends

FloatArray = NDArray[np.float64]
NUM_STEPS = 40
MIDDLE = Point(3)
SETTINGS = RunSettings("/usr/bin/python3")
BITS = EarlyStop("bad", 6, "bits", digest="b:0", value=8.0)


def question(**more: object) -> Question:
    asked = Question("run", "/repo", Range(("a" * 40,), "b" * 40), ("python", "train.py"), SETTINGS, Rung(NUM_STEPS))
    return replace(asked, limits=Limits(early=True), **more)  # type: ignore[arg-type]


def curve(level: float, *, departure: int, own: float = 0.0) -> tuple[RankRecord, ...]:
    """Return one rank's losses: a common fall, a level from the departure on, and what tells runs apart."""
    losses = [2.0 / (1 + idx) + own + (level if idx >= departure else 0.0) for idx in range(NUM_STEPS)]
    return (RankRecord(0, tuple(StepRecord(idx, loss=loss) for idx, loss in enumerate(losses))),)


def end_runs(level: float, *, name: str, num: int = 3, departure: int = 15, rounding: float = 0.0) -> dict[int, EndCurve]:
    return {
        seed: EndCurve(curve(level, departure=departure, own=0.01 * seed + rounding), Shown(f"{name}:{seed}", 0.1 + level))
        for seed in range(num)
    }


# ---- by bits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("good", "bad", "gap", "found"),
    [
        ([1, 1, 1, 1], [1, 1, 2, 2], 1.0, 2),
        ([1, 1, 1, 1], [1, 1.4, 1.5, 2], 1.0, 2),
        ([1, 1, 1, 1], [3, 1, 1, 2], 1.0, 3),  # apart, together again, apart
        ([1, 1, 1, 1], [2, 2, 2, 1.2], 1.0, None),
        ([2, 2, 2, 2], [2, 1, 1, 1], -1.0, 1),
        ([1, 1, 1, 1], [1, 0, 0, 0], 1.0, None),  # the other way
        ([1, None, None, 1], [1, None, None, 2], 1.0, 3),
        ([1, 1], [1, 1], 0.0, None),
        ([1, math.nan, 1], [1, 2, 2], 1.0, 2),
    ],
)
def test_decisive_step_is_where_the_curves_begin_to_stay_apart(
    good: list[float | None], bad: list[float | None], gap: float, found: int | None
) -> None:
    assert decisive_idx(good, bad, final_gap=gap) == found


def test_a_harmless_change_of_rounding_is_not_decisive_but_where_the_regression_acts() -> None:
    good, bad = end_runs(0.0, name="g"), end_runs(1.0, name="b", rounding=1e-9)  # parted from step 0 on
    rules = make_early_rules(good, bad, separated_ends(), LOSS, seed_idx=0)
    assert rules is not None and rules.bits is not None and len(rules.bits.good) == 16
    only_rounding = curve(0.0, departure=0, own=1e-9)
    assert watch_ranks(rules, only_rounding) is None, "bitwise the bad end until step 14, and no worse"
    assert watch_ranks(rules, bad[0].ranks) == EarlyStop("bad", 15, "bits", digest="b:0", value=1.1)


def test_where_any_change_counts_the_bits_decide_where_they_part() -> None:
    good, bad = end_runs(0.0, name="g"), end_runs(1.0, name="b")
    rules = make_early_rules(good, bad, separated_ends(criterion=Criterion.EXACT), LOSS, seed_idx=1)
    assert rules is not None and rules.bits is not None and rules.curve is None
    assert len(rules.bits.good) == 16 and rules.bits.good[:15] == rules.bits.bad[:15]


def test_bits_say_nothing_on_a_seed_that_an_end_has_not_run_nor_where_runs_do_not_repeat() -> None:
    good, bad = end_runs(0.0, name="g"), end_runs(1.0, name="b")
    assert make_early_rules(good, bad, separated_ends(), LOSS, seed_idx=7) is None
    unlike = replace(separated_ends(), repeats_bitwise=False)
    assert make_early_rules(good, bad, unlike, LOSS, seed_idx=0) is None
    inert = replace(separated_ends(), are_seeds_inert=True)
    rules = make_early_rules({0: good[0]}, {0: bad[0]}, inert, LOSS, seed_idx=7)
    assert rules is not None and rules.bits is not None, "every seed is seed 0"


@pytest.mark.parametrize("status", [EndsStatus.OPEN, EndsStatus.SAME])
def test_ends_that_are_not_proved_give_no_rules(status: EndsStatus) -> None:
    ends = replace(separated_ends(), status=status)
    assert make_early_rules(end_runs(0.0, name="g"), end_runs(1.0, name="b"), ends, LOSS, seed_idx=0) is None


def test_ends_with_other_ranks_give_no_rules() -> None:
    good, bad = end_runs(0.0, name="g"), end_runs(1.0, name="b")
    two = {seed: replace(run, ranks=(*run.ranks, replace(run.ranks[0], rank=1))) for seed, run in bad.items()}
    assert make_early_rules(good, two, separated_ends(), LOSS, seed_idx=0) is None
    assert make_early_rules(two, two, separated_ends(), LOSS, seed_idx=0) is None, "the same bits"
    none = {seed: replace(run, ranks=()) for seed, run in good.items()}
    assert make_early_rules(none, none, separated_ends(), LOSS, seed_idx=0) is None


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, ""),
        ({"limits": Limits()}, "--no-early"),
        ({"criterion": Criterion.SYMPTOM}, "how a run ends"),
        ({"symptom": "plateau"}, "how a run ends"),
        ({"settings": replace(SETTINGS, judge=("python", "judge.py"))}, "how a run ends"),
        ({"settings": replace(SETTINGS, restart=RestartSettings(3, ("python", "x.py")))}, "killed and resumed"),
        ({"rung": Rung(None)}, "the whole program"),
        ({"metric": Metric("step_s")}, "step_s is not"),
        ({"metric": Metric("val_loss")}, "val_loss is not"),
        ({"settings": replace(SETTINGS, patterns=(MetricPattern("loss", "x"),))}, "loss is not"),
        ({"metric": Metric("grad_norm")}, ""),
    ],
)
def test_why_not_early(more: dict[str, object], reason: str) -> None:
    said = why_not_early(question(**{key: value for key, value in more.items() if key != "limits"}))
    if "limits" in more:
        said = why_not_early(replace(question(), limits=Limits()))
    assert said.startswith(reason) if reason != "killed and resumed" else reason in said
    assert bool(said) == bool(reason)


# ---- by the curve -----------------------------------------------------------------------------------------------------


def noisy(level: float, *, num: int, rho: float, seed: int, num_steps: int = 100) -> FloatArray:
    """Return curves of AR(1) noise (rho 1: a random walk) that drift away from step 20 on."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(num, num_steps))
    for idx in range(1, num_steps):
        noise[:, idx] += rho * noise[:, idx - 1]
    return noise + level * np.maximum(0, np.arange(num_steps) - 20)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 1.0])
def test_noise_model_is_chosen_by_the_runs(rho: float) -> None:
    rule = fit_curves(noisy(0.0, num=4, rho=rho, seed=1), noisy(2.0, num=4, rho=rho, seed=2), offset=0.05)
    assert rule is not None and rule.rho == pytest.approx(rho, abs=0.12)
    assert (rule.rho == 1.0) == (rho == 1.0)
    assert fit_rho(-noisy(0.0, num=4, rho=-0.5, seed=1)) == 0.0


def test_noise_that_no_model_fits_gives_no_rule() -> None:
    good, bad = noisy(0.0, num=3, rho=0.0, seed=1), noisy(2.0, num=3, rho=0.0, seed=2)
    assert fit_curves(good, bad, offset=0.05) is not None
    with_memory = [side + 3.0 * np.roll(side, 2, axis=1) for side in (good, bad)]  # of what was two steps before
    assert fit_curves(*with_memory, offset=0.05) is None
    spiky = good.copy()
    spiky[0, 5::9] += 40.0
    assert fit_curves(spiky, bad, offset=0.05) is None
    assert fit_curves(np.zeros_like(good), bad, offset=0.05) is None


def test_a_shift_that_a_whole_run_could_hardly_tell_gives_no_rule() -> None:
    good, bad = noisy(0.0, num=3, rho=1.0, seed=1), noisy(0.2, num=3, rho=1.0, seed=2)
    assert fit_curves(good, bad, offset=0.05) is None


def test_a_noisier_end_weighs_every_step_less() -> None:
    good, bad = noisy(0.0, num=3, rho=0.0, seed=1), 3.0 * noisy(0.0, num=3, rho=0.0, seed=2)
    bad += 6.0 * (np.arange(100) > 20)
    rule = fit_curves(good, bad, offset=0.05)
    assert rule is not None and 2.0 < np.mean(rule.sd) < 4.5


def test_a_sudden_departure_stays_sudden() -> None:
    step = np.where(np.arange(60) < 30, 0.0, 1.0)
    kept = smooth_with_edges(step)
    assert kept[:30].max() < 0.05 and kept[30:].min() > 0.95
    assert smooth(step, 15)[29] > 0.4
    assert smooth_with_edges(np.full(40, 2.0)) == pytest.approx(np.full(40, 2.0))


def test_real_noisy_runs_are_stopped_for_the_right_end() -> None:
    """Recorded trainings that never repeat themselves; the rule is made from 5 + 5 of them, the others are watched."""
    curves = {variant: np.array(runs) for variant, runs in read_curves().items()}
    num_steps, num_watched, num_wrong, steps_made = curves["good"].shape[1], 0, 0, 0
    for first in range(0, 40, 5):
        good, bad = (curves[variant][first : first + 5] for variant in ("good", "bad"))
        rule = fit_curves(good, bad, offset=0.1)
        assert rule is not None
        for variant in ("good", "bad"):
            for run in np.delete(curves[variant], range(first, first + 5), axis=0):
                watch = CurveWatch(rule)
                nats, made = 0.0, num_steps
                for idx, value in enumerate(run[:-1]):
                    if nats := watch.take(float(value)):
                        made = idx + 1
                        break
                num_watched, steps_made = num_watched + 1, steps_made + made
                num_wrong += nats != 0.0 and (nats > 0.0) != (variant == "bad")
    assert num_wrong <= 0.01 * num_watched
    assert steps_made <= 0.55 * num_watched * num_steps


# ---- what it counts as --------------------------------------------------------------------------------------------------


def stopped(stop: EarlyStop, *, num_steps: int = 8) -> Fingerprint:
    steps = tuple(StepRecord(idx, loss=1.0) for idx in range(num_steps))
    return Fingerprint(Ending(EndingKind.STOPPED), (RankRecord(0, steps),), early=stop)


def by_curve(nats: float, *, seed_idx: int = 0) -> Observation:
    outcome = judge_outcome(stopped(EarlyStop("bad" if nats > 0 else "good", 7, "curve", nats=nats)), LOSS)
    assert outcome.kind is OutcomeKind.EARLY and outcome.value is None
    return Observation(MIDDLE, seed_idx, 0, 0, -1, outcome)


def test_run_that_was_stopped_by_its_bits_counts_as_that_ends_run() -> None:
    outcome = judge_outcome(stopped(BITS), LOSS)
    assert (outcome.kind, outcome.value, outcome.digest, outcome.is_early) == (OutcomeKind.MEASURED, 8.0, "b:0", True)
    assert outcome.reason == "stopped early at step 6: bitwise the bad end so far"
    evidence = judge_variant([Observation(MIDDLE, 0, 0, 0, -1, outcome)], separated_ends(), LOSS)
    assert (evidence.verdict, evidence.nats) == (VerdictKind.BAD, MAX_NATS)


@pytest.mark.parametrize(
    ("nats", "verdict"), [(4.7, VerdictKind.BAD), (-4.7, VerdictKind.GOOD), (1.0, VerdictKind.INCONCLUSIVE)]
)
def test_run_that_was_stopped_by_its_curve_counts_as_its_nats(nats: float, verdict: VerdictKind) -> None:
    evidence = judge_variant([by_curve(nats)], separated_ends(), LOSS)
    assert (evidence.verdict, evidence.nats, evidence.num_runs) == (verdict, nats, 1)


def test_curves_of_one_variant_together_weigh_no_more_than_one_run() -> None:
    runs = [by_curve(5.0, seed_idx=idx) for idx in range(6)]
    assert judge_variant(runs, separated_ends(), LOSS).nats == MAX_NATS
    mixed = [by_curve(50.0), by_curve(-6.0, seed_idx=1)]
    assert judge_variant(mixed, separated_ends(), LOSS).nats == pytest.approx(MAX_NATS - 6.0)


def test_curves_are_added_to_what_whole_runs_say_and_do_not_move_their_mean() -> None:
    ends = replace(separated_ends(), repeats_bitwise=False)
    whole = [measured(MIDDLE, 1, 7.9), measured(MIDDLE, 2, 8.1)]
    alone = judge_variant(whole, ends, LOSS)
    both = judge_variant([by_curve(5.0), *whole], ends, LOSS)
    assert both.nats == pytest.approx(alone.nats + 5.0) and both.num_runs == 3 and both.verdict is VerdictKind.BAD
    against = judge_variant([by_curve(-5.0), *whole], ends, LOSS)
    assert against.nats == pytest.approx(alone.nats - 5.0)


def test_stop_survives_the_store() -> None:
    result = ProbeResult("key", stopped(BITS))
    assert unpack_result(pack_result(result)) == result


# ---- nobody takes it for a whole run ------------------------------------------------------------------------------------


def test_another_bisection_never_reuses_it() -> None:
    whole = ProbeResult("key", replace(stopped(BITS), early=None))
    assert is_reusable(whole, SETTINGS) and not is_reusable(ProbeResult("key", stopped(BITS)), SETTINGS)


def test_its_bits_prove_nothing_about_forks() -> None:
    store, facts = MemoryStore(), MachineFacts("x", "y", 1)
    asked = replace(question(), settings=replace(SETTINGS, warm=True))
    name = store.create(asked.to_json(), title="t")
    warmth = Warmth(asked, bisection_id=name, store=store, facts=facts)
    spec = ProbeSpec(Variant("0" * 40, "1" * 40, ("x",)), Rung(NUM_STEPS))
    assert warmth.take(spec, ProbeResult("key", stopped(BITS))) == ""
    assert warmth.must_be_fresh(spec), "a part of a run is no fresh twin"
    assert not store.events(name)


def asked_for(request: Request, *, phase: Phase = Phase.SEARCH, posterior: tuple[float, ...] = (0.0625,) * 16) -> bool:
    """Return whether a run may be stopped early."""
    rules = Rules(16, EndRules(LOSS))
    sides = ((rules.good_point, end_runs(0.0, name="g")), (rules.bad_point, end_runs(1.0, name="b")))
    observations, runs = [], {}
    for point, side in sides:
        for seed, run in side.items():
            observations.append(measured(point, seed, run.shown.value, digest=run.shown.digest))
            runs[Request(point, seed)] = ProbeResult("key", Fingerprint(Ending(EndingKind.STOPPED), run.ranks))
    plan = Plan(phase, (request,), separated_ends(), posterior)
    found = EarlyVerdicts(question()).rules_for(request, plan, rules, observations=observations, runs=runs)
    return found is not None


def test_only_runs_of_the_search_may_be_stopped() -> None:
    assert asked_for(Request(MIDDLE, 0))
    for request in (
        Request(Point(0), 0),
        Request(Point(16), 0),
        Request(MIDDLE, 0, repeat=1),
        Request(MIDDLE, 0, attempt=1, proof_of=2),
        Request(MIDDLE, 0, part=1),
        Request(MIDDLE, 0, part=-10),
        Request(MIDDLE, 9),  # a seed that the ends have not run
    ):
        assert not asked_for(request), request
    for phase in (Phase.ENDS, Phase.BASE, Phase.PROOF, Phase.PARTNER, Phase.REST):
        assert not asked_for(Request(MIDDLE, 0), phase=phase)


def test_a_run_that_will_probably_be_wanted_whole_is_not_stopped() -> None:
    likely = tuple(0.2 if idx in (2, 3) else 0.6 / 14 for idx in range(16))
    assert not asked_for(Request(Point(3), 0), posterior=likely), "the culprit's version, or the one before it"
    assert asked_for(Request(Point(9), 0), posterior=likely)


def test_cost_counts_what_was_not_run() -> None:
    results = [ProbeResult("a", stopped(BITS)), ProbeResult("b", stopped(BITS))]
    results.append(ProbeResult("c", replace(stopped(BITS), early=None)))
    probes = [StoredProbe(result.job_id, "bisection", {}, result, 0.0) for result in results]
    assert count_early(probes, question()) == (2, 2 * (NUM_STEPS - 8))


def test_ends_without_a_gap_give_no_curve_rule() -> None:
    good, bad = end_runs(0.0, name="g"), end_runs(1.0, name="b")
    flat: Ends = replace(separated_ends(gap=0.0), repeats_bitwise=False)
    assert make_early_rules(good, bad, flat, LOSS, seed_idx=0) is None
