"""Pairs: where the same seed moves every variant alike, much smaller effects can be told."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from bisect_train.core.changes import Point
from bisect_train.core.question import Metric
from bisect_train.search.terms import Rules
from bisect_train.verdict.end_terms import EndRules, Ends, EndsStatus
from bisect_train.verdict.ends import prove_ends, renewed_ends
from bisect_train.verdict.pairing import differences_of, with_pairs, without_seed_effects
from bisect_train.verdict.stats import correlation, sign_flip_p
from tests.support.observations import LOSS, end_runs, measured, separated_ends
from tests.support.simulated_regression import World, solve, step_world

SEEDS = [0.0, 3.0, -2.0, 1.0, -4.0, 2.0]


def by_seed(values: list[float]) -> dict[int, float]:
    """Return values by seed index."""
    return dict(enumerate(values))


def test_sign_flip_p_is_the_share_of_sign_patterns() -> None:
    differences = [0.5, -0.2, 1.0, 0.7]
    total = sum(differences)
    shares = [sum(s * d for s, d in zip(signs, differences, strict=True)) >= total for signs in product((1, -1), repeat=4)]
    assert sign_flip_p(differences) == sum(shares) / 16
    assert sign_flip_p([1.0] * 8) == 1 / 256
    with pytest.raises(ValueError, match="20"):
        sign_flip_p([1.0] * 21)


def test_correlation_of_a_constant_is_none() -> None:
    assert correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) == 0.0
    assert correlation([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]) == pytest.approx(1.0)


def test_differences_need_pairs_that_go_together() -> None:
    bad = [value + 1.0 for value in SEEDS]
    assert differences_of(by_seed(SEEDS), by_seed(bad)) == [1.0] * 6
    assert differences_of(by_seed(SEEDS), by_seed(bad[::-1])) == []
    assert differences_of(by_seed(SEEDS[:4]), by_seed(bad)) == [], "four pairs are too few"


def test_pairs_take_the_effects_of_the_seeds_off() -> None:
    noise = [0.1, -0.1, 0.05, 0.0, -0.05, 0.0]
    good = by_seed(SEEDS)
    bad = {idx: value + 4.0 + noise[idx] for idx, value in good.items()}
    ends = with_pairs(renewed_ends(_with_values(good, bad), LOSS), LOSS)
    assert ends.are_paired and ends.spread > 2.0 and ends.paired_spread < 0.1
    values, seen = without_seed_effects([measured(Point(3), idx, SEEDS[idx] + 4.0) for idx in range(3)], ends, LOSS)
    assert values == pytest.approx([4.0] * 3, abs=0.15) and seen.spread == ends.paired_spread
    stranger = [measured(Point(3), 40, 4.0)]
    assert without_seed_effects(stranger, ends, LOSS) == ([4.0], ends), "a seed that the ends never ran"


def _with_values(good: dict[int, float], bad: dict[int, float]) -> Ends:
    return replace(separated_ends(4.0), good_values=good, bad_values=bad)


def test_pairs_are_not_used_where_the_ends_lie_far_apart() -> None:
    good = by_seed(SEEDS)
    far = {idx: value + 40.0 for idx, value in good.items()}
    assert not with_pairs(renewed_ends(_with_values(good, far), LOSS), LOSS).are_paired


def test_ends_that_go_together_separate_by_their_pairs() -> None:
    """A gap of 1.2 sd: eight seeds side by side show nothing, eight pairs do."""
    rng = np.random.default_rng(1)
    seeds = rng.normal(size=8)
    good, bad = seeds + 0.05 * rng.normal(size=8), 1.2 + seeds + 0.05 * rng.normal(size=8)
    rules = EndRules(LOSS, min_effect=0.5)
    ends = prove_ends(end_runs(Point(0), list(good)), end_runs(Point(9), list(bad)), rules)
    assert ends.status is EndsStatus.SEPARATED and ends.are_paired
    apart = prove_ends(end_runs(Point(0), list(good)), end_runs(Point(9), list(np.roll(bad, 3))), rules)
    assert apart.status is EndsStatus.UNCLEAR


def test_ends_of_null_ranges_that_go_together_separate_in_about_one_in_a_hundred() -> None:
    rng, num = np.random.default_rng(8), 400
    num_separated = 0
    for _ in range(num):
        seeds = rng.normal(size=8)
        good, bad = (list(seeds + 0.2 * rng.standard_t(4, size=8)) for _ in range(2))
        runs = end_runs(Point(0), good), end_runs(Point(9), bad)
        num_separated += prove_ends(*runs, EndRules(LOSS, min_effect=1e-9)).status is EndsStatus.SEPARATED
    assert num_separated <= 0.01 * num + 3 * (0.01 * num) ** 0.5


@pytest.mark.parametrize("gap", [1.5, 2.0])
def test_plan_isolates_small_effects_by_pairs(gap: float) -> None:
    world = step_world(32, 11, gap, seed=2, noise_sd=0.2, seed_sd=1.0)
    solved = solve(world, Rules(32, EndRules(Metric())), slots=4, max_probes=2000)
    assert (solved.answer.status, [item.changes for item in solved.answer.culprits]) == ("isolated", [(11,)])
    assert "paired" in {claim.how for claim in solved.plan.claims}


def test_plan_names_nobody_wrongly_where_pairs_break_in_the_middle() -> None:
    """The ends go together, the versions between them do not: that misleads the search, not the proof."""
    for seed in range(8):
        paired = World(mean_of=lambda point: 2.0 * point.holds(11), seed=seed, noise_sd=0.2, seed_sd=1.0)
        broken = World(mean_of=lambda point: 2.0 * point.holds(11), seed=seed + 100, noise_sd=1.0)

        class Mixed(World):
            def run(self, request):  # type: ignore[no-untyped-def]
                is_end = request.point in (Point(0), Point(24))
                return (paired if is_end else broken).run(request)  # noqa: B023

        solved = solve(Mixed(mean_of=lambda point: 0.0), Rules(24, EndRules(Metric())), slots=4, max_probes=3000)
        named = {idx for culprit in solved.answer.culprits for idx in culprit.changes}
        assert solved.answer.status not in ("isolated", "several") or named == {11}, seed


def test_pairs_keep_the_sign_of_a_metric_where_higher_is_better() -> None:
    accuracy = Metric("accuracy", better="higher")
    good = {idx: -value for idx, value in by_seed(SEEDS).items()}  # signed so that larger is worse
    bad = {idx: value + 4.0 + 0.1 * (idx % 2) for idx, value in good.items()}
    ends = with_pairs(renewed_ends(_with_values(good, bad), accuracy), accuracy)
    assert ends.are_paired and ends.good is not None and ends.bad is not None
    assert ends.gap > 0 and ends.bad.mean < ends.good.mean, "the bad end is less accurate"
    values, _ = without_seed_effects([measured(Point(3), 0, -bad[0])], ends, accuracy)
    assert values[0] == pytest.approx(-ends.bad.mean, abs=0.2)
