"""Hundreds of nights with noise and no regression: what is found stays under what docs/nightly.md claims."""

from __future__ import annotations

from bisect_train.nightly.finding import FindingState
from tests.support.simulated_nights import Nights, Runs, World, name_of

NUM_WATCHES, NUM_NIGHTS = 8, 30
MAX_FALSE = 0.005
"""Findings a night where nothing has changed, by docs/nightly.md."""


def test_nights_without_a_regression_find_none_beyond_the_claim() -> None:
    num_found = num_unclear = 0
    for seed in range(NUM_WATCHES):
        world = World(noise=1.0, seed_noise=0.5, commit_noise=0.1, seed=seed)
        nights = Nights(world, runs=Runs(world, min_effect=1.0))
        nights.runs.can_prove = False  # so that each finding rests on the ends alone
        nights.pinned = 0
        for idx in range(NUM_NIGHTS):
            num_unclear += nights.night(idx, first_good=name_of(0)).exit_status == 3
        num_found += sum(finding.state is FindingState.OPEN for finding in nights.place.got)
    num_nights = NUM_WATCHES * NUM_NIGHTS
    assert num_found <= MAX_FALSE * num_nights, f"{num_found} in {num_nights} nights"
    assert num_unclear < num_nights, "some nights tell"
