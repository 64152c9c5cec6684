"""Thresholds of triage from both sides: a little more is told, a little less is not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.triage_records import make_run, seeds, told


@pytest.mark.parametrize(
    ("ratio", "loss", "is_told"),
    [(0.5, 1.0, True), (0.505, 1.0, True), (0.52, 1.0, False), (0.5, 1.008, True), (0.5, 1.02, False)],
)
def test_averaging_is_told_within_2_percent_of_the_ratio_at_an_equal_loss(ratio: float, loss: float, is_told: bool) -> None:
    base = make_run(ranks=2, change=lambda _, step: {"grad_norm": 1.0, "loss": 2.0 - 0.01 * step})
    run = make_run(ranks=2, change=lambda _, step: {"grad_norm": ratio, "loss": loss * (2.0 - 0.01 * step)})
    assert ("gradients_averaged_twice" in told(run, baseline=base)) is is_told


@pytest.mark.parametrize(("later", "is_told"), [(0.6, True), (0.7, False)])
def test_averaging_holds_for_the_median_of_the_first_steps(later: float, is_told: bool) -> None:
    base = make_run(ranks=2, change=lambda *_: {"grad_norm": 1.0})
    run = make_run(ranks=2, change=lambda _, step: {"grad_norm": 0.5 if step == 0 else later})
    assert ("gradients_averaged_twice" in told(run, baseline=base)) is is_told


@pytest.mark.parametrize(
    ("data_s", "step_s", "is_told"), [(0.06, 0.11, True), (0.06, 0.13, False), (0.045, 0.06, False), (0.055, 0.06, True)]
)
def test_waits_need_half_of_the_time_and_50_ms(data_s: float, step_s: float, is_told: bool) -> None:
    assert (told(make_run(change=lambda *_: {"data_s": data_s, "step_s": step_s})) == ["data_loading"]) is is_told


@pytest.mark.parametrize(
    ("base_s", "data_s", "is_told"), [(0.02, 0.045, True), (0.02, 0.035, False), (0.03, 0.055, False), (0.001, 0.004, False)]
)
def test_waits_against_a_baseline_need_a_fifth_more_and_twice_the_wait(base_s: float, data_s: float, is_told: bool) -> None:
    step_s = 0.1 if base_s > 0.01 else 0.01
    base = make_run(change=lambda *_: {"data_s": base_s, "step_s": step_s})
    run = make_run(change=lambda *_: {"data_s": data_s, "step_s": step_s})
    assert (told(run, baseline=base) == ["data_loading"]) is is_told


@pytest.mark.parametrize(("num", "first", "is_told"), [(5, 0, True), (4, 0, False), (5, 9, True), (5, 10, False)])
def test_rate_of_zero_for_five_steps_from_the_first_ten_on(num: int, first: int, is_told: bool) -> None:
    run = make_run(change=lambda _, step: {"lr": (0.0,)} if first <= step < first + num else {})
    assert (told(run) == ["lr_stalls"]) is is_told


@pytest.mark.parametrize(("earlier", "is_told"), [(5, True), (4, False)])
def test_rate_jump_needs_five_steps_before_it(earlier: int, is_told: bool) -> None:
    assert (told(make_run(change=lambda _, step: {"lr": (0.01,) if step < earlier else (1.0,)})) == ["lr_jumps"]) is is_told


@pytest.mark.parametrize(("share", "is_told"), [(2e-6, True), (5e-7, False)])
def test_rates_differ_beyond_a_millionth(share: float, is_told: bool) -> None:
    run = make_run(change=lambda *_: {"lr": (0.1 * (1.0 + share),)})
    assert (told(run, baseline=make_run()) == ["lr_differs"]) is is_told


@pytest.mark.parametrize(("norm", "is_told"), [(0.9e-6, True), (1.1e-6, False)])
def test_vanishing_norm_alone_is_a_millionth_for_the_first_ten_steps(norm: float, is_told: bool) -> None:
    assert (told(make_run(change=lambda *_: {"grad_norm": norm})) == ["vanishing_gradient"]) is is_told
    most = make_run(change=lambda _, step: {"grad_norm": norm if step < 6 else 1.0})
    assert (told(most) == ["vanishing_gradient"]) is is_told  # the median of ten
    assert told(make_run(change=lambda _, step: {"grad_norm": norm if step < 4 else 1.0})) == []


@pytest.mark.parametrize(("ratio", "is_told"), [(0.9e-3, True), (1.1e-3, False)])
def test_vanishing_norm_against_the_baseline_is_a_thousandth(ratio: float, is_told: bool) -> None:
    base, run = make_run(change=lambda *_: {"grad_norm": 1.0}), make_run(change=lambda *_: {"grad_norm": ratio})
    assert (told(run, baseline=base) == ["vanishing_gradient"]) is is_told


@pytest.mark.parametrize(("num_steps", "is_told"), [(10, True), (9, False)])
def test_lost_updates_take_ten_steps(num_steps: int, is_told: bool) -> None:
    run = make_run(num_steps, change=lambda *_: {"moved": 0.03, "dtypes": ("param:bfloat16",)})
    assert (told(run) == ["lost_updates"]) is is_told


@pytest.mark.parametrize(("fall", "is_told"), [(0.8e-3, True), (1.3e-3, False)])
def test_plateau_alone_is_a_drop_below_a_thousandth(fall: float, is_told: bool) -> None:
    run = make_run(100, change=lambda _, step: {"loss": 1.0 - fall * (step >= 50)})
    assert (told(run) == ["plateau"]) is is_told


@pytest.mark.parametrize(("drop", "is_told"), [(0.12, True), (0.3, False)])
def test_plateau_against_the_baseline_is_a_tenth_of_its_drop(drop: float, is_told: bool) -> None:
    def curve(size: float) -> Any:
        return lambda _, step: {"loss": 3.0 - size * (1.0 - math.exp(-step / 15.0)) + 0.05 * (-1) ** step}

    found = told(make_run(change=curve(drop)), baseline=make_run(change=curve(2.0)))
    assert ("plateau" in found) is is_told


@pytest.mark.parametrize(("num", "is_told"), [(2, True), (1, False)])
def test_spikes_are_two_more_than_the_healthy_runs_have(num: int, is_told: bool) -> None:
    run = make_run(100, change=lambda _, step: {"loss": 2.0} if step in (60, 80)[:num] else {})
    base = make_run(100, change=lambda *_: {})
    one = make_run(100, change=lambda _, step: {"loss": 2.0} if step == 70 else {})
    assert ("loss_spikes" in told(run, baseline=base)) is is_told
    assert "loss_spikes" not in told(run, baseline=one)
    large = make_run(100, change=lambda _, step: {"loss": 4.5} if step == 60 else {})
    assert "loss_spikes" in told(large, baseline=one) and "loss_spikes" not in told(large, baseline=base)


@pytest.mark.parametrize(("step_s", "is_told"), [(0.18, False), (0.23, True)])
def test_slower_is_beyond_the_slowest_healthy_seed(step_s: float, is_told: bool) -> None:
    wide = seeds(change=lambda _, step: {"step_s": 0.1 if step % 3 == 0 else 0.19})
    assert (told(make_run(change=lambda *_: {"step_s": step_s}), baseline=make_run(), replicates=wide) == ["slower"]) is is_told
