"""Hashes, sums and the copy to the host, on tensors of many kinds. Runs in this process."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="the recorder's integration tests train with torch")
sys.path.append(str(Path(__file__).parents[2] / "workers" / "bisect_train_workers" / "recorder"))

from _bisect_train_recorder import hashes, readout, tensor_sums  # noqa: E402

KINDS = ("bool", "uint8", "float16", "bfloat16", "float32", "float64", "complex64", "int64")


def batch_hash(*args: Any, **kwargs: Any) -> str:
    """Return the hash of one call's inputs."""
    hasher = hashes.BatchHasher(torch)
    hasher.add(args, kwargs)
    return hasher.hexdigest()


def test_read_numbers_in_one_copy_keeps_every_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readout, "_READ_ONE_BY_ONE", ())  # treat the cpu as a device
    numbers = [
        1.5,
        torch.tensor(0.1),
        torch.tensor(float("nan")),
        torch.tensor(1 - 2**62),
        torch.tensor(3.25, dtype=torch.bfloat16),
        7,
        torch.tensor([1e300], dtype=torch.float64),
        torch.tensor(float("-inf")),
    ]
    values = readout.read_numbers(torch, numbers)
    assert math.isnan(values.pop(2))
    assert values == [1.5, torch.tensor(0.1).item(), 1 - 2**62, 3.25, 7, 1e300, -math.inf]


def test_snapshot_of_a_loss_is_not_changed_in_place_later() -> None:
    loss = torch.tensor(2.0)
    value = readout.snapshot(torch, loss)
    loss.zero_()
    assert value == 2.0


def test_sums_of_squares_over_mixed_tensors_adds_up_in_double() -> None:
    tensors = [torch.ones(3), torch.full((2,), 300.0).half(), torch.eye(3).to_sparse(), torch.empty(0)]
    assert math.isclose(sum(tensor_sums.sums_of_squares(torch, tensors)), 3 + 2 * 300.0**2 + 3, rel_tol=1e-6)


@pytest.mark.parametrize("has_hash_tensor", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_bit_sums_ignore_order_and_see_a_changed_element(kind: str, has_hash_tensor: bool, monkeypatch: Any) -> None:
    if not has_hash_tensor and hasattr(torch, "hash_tensor"):
        monkeypatch.delattr(torch, "hash_tensor")
    first, second = torch.arange(12).reshape(3, 4).to(getattr(torch, kind)), torch.zeros(5, dtype=getattr(torch, kind))

    def total(*tensors: Any) -> int:
        return sum(int(part) for part in tensor_sums.bit_sums(torch, tensors)) % tensor_sums.HASH_MODULUS

    base = total(first, second)
    assert total(second, first.flip(0)) == base
    assert total(first.t(), second) == base
    changed = first.clone()
    changed[0, 0] = 1
    assert total(changed, second) != base


@pytest.mark.parametrize("num_elements", [16, 1 << 18])
def test_batch_hash_sees_content_shape_dtype_and_names(num_elements: int) -> None:
    x = torch.arange(num_elements, dtype=torch.float32)
    base = batch_hash(x, mask=[None, 3])
    assert batch_hash(x.clone(), mask=[None, 3]) == base
    changed = x.clone()
    changed[7] += 1
    different = [(changed, {"mask": [None, 3]}), (x.reshape(2, -1), {"mask": [None, 3]}), (x.double(), {"mask": [None, 3]})]
    different += [(x, {"mask": [None, 4]}), (x, {"other": [None, 3]}), (x.flip(0), {"mask": [None, 3]})]
    assert len({base, *(batch_hash(value, **names) for value, names in different)}) == 7


def test_rng_hash_draws_nothing_and_sees_one_draw() -> None:
    state = torch.get_rng_state()
    before = hashes.rng_hash(torch)
    assert hashes.rng_hash(torch) == before
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(1)
    assert hashes.rng_hash(torch) != before


def test_rng_hash_sees_each_draw_from_numpy_even_a_kept_gauss() -> None:
    random = pytest.importorskip("numpy.random")
    before = random.get_state()
    found = [hashes.rng_hash(torch)]
    for draw in (random.randn, random.randn, random.rand, lambda: random.set_state(before)):
        draw()
        found.append(hashes.rng_hash(torch))
        assert hashes.rng_hash(torch) == found[-1]
    assert found[-1] == found[0]
    assert len(set(found)) == 4


def test_rng_hash_is_the_same_in_another_process() -> None:
    path = Path(__file__).parents[2] / "workers" / "bisect_train_workers" / "recorder"
    pytest.importorskip("numpy")
    seeds = "random.seed(1); numpy.random.seed(1); torch.manual_seed(1)"
    source = f"import random, numpy, torch; {seeds}; from _bisect_train_recorder import hashes; print(hashes.rng_hash(torch))"
    command = [sys.executable, "-c", source]
    environments = [{**os.environ, "PYTHONPATH": str(path), "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    printed = [subprocess.run(command, env=env, check=True, capture_output=True).stdout for env in environments]
    assert printed[0] == printed[1]
