"""Two gloo ranks, each with a piece of the model or a copy of it: recorded pieces add up to the norms of the whole."""

from __future__ import annotations

import sys

import pytest

from tests.support.engines.bench import RECORDER, Job, Rank, run_jobs
from tests.support.engines.checks import NORM_TOLERANCE, assert_near, assert_stopped, assert_told, assert_unchanged, records_of

torch = pytest.importorskip("torch", reason="the engines train with torch")
sys.path.insert(0, str(RECORDER))
from _bisect_train_recorder import hashes  # noqa: E402

from tests.support.engines.common import batch  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")

ENGINES = (
    *("ddp_no_sync", "averaged_by_hand", "zero_1", "fsdp_flat", "fsdp_orig", "fsdp_scaler", "fsdp2", "hsdp"),
    *("tensor_parallel", "pipeline_1f1b", "pipeline_summed"),
)
STOPPED = ("zero_1", "fsdp2", "pipeline_1f1b")
IN_PIECES = ("zero_1", "fsdp_flat", "fsdp_orig", "fsdp_scaler", "fsdp2", "hsdp", "tensor_parallel", "pipeline_1f1b")
LIKE_ONE_RANK = ("averaged_by_hand", "zero_1", "fsdp_orig", "fsdp2", "hsdp")
FULL = {"checksum_every": 1, "every_step": True}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Rank]]]:
    """Each engine plain and recorded; some stopped after two steps; and the same model on one rank."""
    jobs = [Job(name, 2, settings) for name in ENGINES for settings in (None, FULL)]
    jobs += [Job(name, 2, {"steps": 2}) for name in STOPPED]
    found = run_jobs(tmp_path_factory.mktemp("ranks"), [*jobs, Job("single_reference", 1, FULL)])
    runs = {name: found[2 * idx : 2 * idx + 2] for idx, name in enumerate(ENGINES)}
    for idx, name in enumerate(STOPPED):
        runs[name].append(found[2 * len(ENGINES) + idx])
    return {**runs, "single_reference": found[-1:]}


@pytest.mark.parametrize("engine", ENGINES)
def test_recorder_on_two_ranks_changes_nothing_and_its_pieces_add_up(runs: dict[str, list[list[Rank]]], engine: str) -> None:
    plain, recorded = runs[engine][:2]
    assert_unchanged(plain, recorded)
    assert_told(recorded)
    has_whole = [step.whole_param_norm is not None for rank in records_of(recorded) for step in rank.steps]
    assert set(has_whole) == {engine in IN_PIECES or engine == "pipeline_summed"}


@pytest.mark.parametrize("engine", STOPPED)
def test_run_of_two_ranks_is_stopped_after_its_steps_on_each(runs: dict[str, list[list[Rank]]], engine: str) -> None:
    _, recorded, cut = runs[engine]
    assert_stopped(cut, recorded, num_steps=2)


@pytest.mark.parametrize("engine", LIKE_ONE_RANK)
def test_norms_of_a_sharded_run_are_those_of_the_same_run_on_one_rank(runs: dict[str, list[list[Rank]]], engine: str) -> None:
    (single,) = records_of(runs["single_reference"][0])
    for rank in records_of(runs[engine][1]):
        for step, whole in zip(rank.steps, single.steps, strict=True):
            grad = step.whole_grad_norm if step.whole_grad_norm is not None else step.grad_norm
            param = step.whole_param_norm if step.whole_param_norm is not None else step.param_norm
            assert_near(grad, whole.grad_norm, 10 * NORM_TOLERANCE)
            assert_near(param, whole.param_norm, 10 * NORM_TOLERANCE)
            assert_near(step.clip_norm, whole.clip_norm, 10 * NORM_TOLERANCE)


def test_last_stage_of_a_pipeline_has_the_losses_of_all_micro_batches(runs: dict[str, list[list[Rank]]]) -> None:
    first, last = records_of(runs["pipeline_1f1b"][1])
    assert {step.micro for step in first.steps} == {()}
    assert {len(step.micro) for step in last.steps} == {4}


def test_batch_of_a_pipeline_is_what_its_stages_are_given_not_the_memory_on_which_they_learn_their_shapes(
    runs: dict[str, list[list[Rank]]],
) -> None:
    given = hashes.BatchHasher(torch)
    for micro_batch in batch(0)[0].chunk(4):
        given.add((micro_batch,), {})
    for engine in ("pipeline_1f1b", "pipeline_summed"):
        first, last = runs[engine][1]
        assert first.steps[0]["batch_hash"] == given.hexdigest()
        assert last.steps[0]["batch_hash"] == runs["pipeline_1f1b"][1][1].steps[0]["batch_hash"]
