"""What goes wrong between ranks while the mean loss looks fine; and the layouts of ranks in which the same signs are right."""

from __future__ import annotations

from typing import Any

import pytest

from bisect_train.core.fingerprint import Event, Fingerprint
from bisect_train.core.probe import ProbeResult
from bisect_train.verdict.divergence import Stage, first_divergence
from bisect_train.verdict.outcome import why_unseen
from bisect_train.verdict.triage import Category, hard_symptoms
from bisect_train.verdict.triage.agreement import odd_ranks
from bisect_train.verdict.triage.run_view import RunView
from tests.support.triage_records import collective, finding_of, judge, make_run, own_samples, sample_text, told


def same_batches(rank: int, step: int) -> dict[str, Any]:
    return {"batch_hash": f"b{step}", "samples": sample_text(*own_samples(0, step, 1)), "loss": 2.0 - 0.01 * step}


def apart(rank: int, step: int) -> dict[str, Any]:
    """Each rank has parameters and gradients of its own, as shards and stages do."""
    is_sampled = step % 10 == 0 or step == 39
    return {"param_hash": f"p{rank}-{step}" if is_sampled else None, "grad_norm": 1.0 + rank}


def own_start(rank: int, *, norm: float = 10.0, num_params: int = 1000) -> dict[str, list[Event]]:
    data = {"param_hash": f"start{rank}", "param_norm": norm, "num_params": num_params}
    return {"initial_params": [Event("initial_params", 0, data)]}


def test_replicas_are_ranks_with_equal_parameters_after_a_step_or_before_it() -> None:
    assert RunView.of(make_run(ranks=4)).replica_groups == ((0, 1, 2, 3),)
    assert RunView.of(make_run(ranks=2, change=apart)).replica_groups == ((0, 1),)  # equal at the start
    assert RunView.of(make_run(ranks=2, change=apart, events=own_start)).replica_groups == ()
    pairs = make_run(
        ranks=4, change=lambda rank, step: {"param_hash": f"{rank % 2}-{step}"}, events=lambda rank: own_start(rank % 2)
    )
    assert RunView.of(pairs).replica_groups == ((0, 2), (1, 3))


def test_ranks_that_keep_a_shard_of_the_optimizer_are_no_replicas() -> None:
    def shard(rank: int, step: int) -> dict[str, Any]:
        return {**apart(rank, step), "param_norm": 7.07}  # 10 / sqrt 2: half of the squares on each rank

    run = make_run(ranks=2, change=shard)
    assert RunView.of(run).replica_groups == () and RunView.of(run).is_sharded and told(run) == []


def test_same_data_needs_replicas_and_equal_batches_at_every_first_step() -> None:
    run = make_run(ranks=2, change=same_batches)
    found = finding_of("same_data", run)
    assert told(run) == ["same_data"] and hard_symptoms(run.fingerprint) == ("same_data",)
    assert (found.ranks, found.stage, found.step) == ((0, 1), Stage.DATA, 0)
    once = make_run(ranks=2, change=lambda rank, step: {} if step == 9 else {"batch_hash": f"b{step}"})
    assert told(once) == []
    assert told(make_run(1, ranks=2, change=same_batches)) == []


def test_same_data_on_tensor_parallel_ranks_is_right() -> None:
    run = make_run(ranks=2, change=lambda rank, step: {**apart(rank, step), **same_batches(rank, step)}, events=own_start)
    assert told(run) == []
    four = make_run(
        ranks=4,
        change=lambda rank, step: {
            "param_hash": f"{rank % 2}-{step}",
            "batch_hash": f"{rank // 2}-{step}",
            "samples": None,
            "grad_norm": 1.0 + rank % 2,
        },
        events=lambda rank: own_start(rank % 2),
    )
    assert told(four) == []


def test_same_data_with_a_sequence_that_is_split_is_right() -> None:
    calls = {"collective": [collective(idx, "all_to_all_single") for idx in range(4)]}
    assert told(make_run(ranks=2, change=same_batches, events=lambda _: calls)) == []


SENDS = {"point_to_point": [Event("point_to_point", 0, {"op": "batch_isend_irecv"})]}


def test_same_data_on_ranks_that_send_to_each_other_is_right() -> None:
    run = make_run(ranks=2, change=same_batches, events=lambda _: SENDS)
    assert told(run) == []  # ring attention: each rank has its part of the sequence
    assert "same_data" in told(run, baseline=make_run(ranks=2, events=lambda _: SENDS))
    assert told(make_run(ranks=2, change=overlap, events=lambda _: SENDS)) == []
    assert "send to each other" in why_unseen(run.fingerprint, "same_data")
    assert why_unseen(make_run(ranks=2).fingerprint, "same_data") == ""


def test_ranks_that_send_to_each_other_call_different_things_rightly() -> None:
    def stage(rank: int) -> dict[str, list[Event]]:
        return {**SENDS, "collective": [collective(0, "all_reduce", [10 + rank])]}

    assert told(make_run(ranks=2, events=stage)) == []
    fewer = make_run(ranks=2, change=lambda rank, _: {"collectives": f"{1 + rank}:0a"}, events=lambda _: SENDS)
    assert told(fewer) == []


def test_same_data_against_a_baseline_with_other_batches_is_told_of_shards_as_well() -> None:
    def sharded(rank: int, step: int) -> dict[str, Any]:
        return {**apart(rank, step), **same_batches(rank, step)}

    base = make_run(ranks=2, change=apart, events=own_start)
    assert "same_data" in told(make_run(ranks=2, change=sharded, events=own_start), baseline=base)
    same = make_run(ranks=2, change=same_batches)
    assert told(same, baseline=same) == []


def overlap(rank: int, step: int) -> dict[str, Any]:
    """Rank 1 has half of the samples that rank 0 has five steps later."""
    first = 4 * (step + 5 * rank)
    return {"samples": sample_text(*range(first, first + 4))} if rank == 0 else {
        "samples": sample_text(first, first + 1, 10_000 + 2 * step, 10_001 + 2 * step)
    }  # fmt: skip


def test_overlapping_samples_by_themselves_need_chance_to_be_excluded() -> None:
    run = make_run(ranks=2, change=overlap)
    found = finding_of("overlapping_samples", run)
    assert told(run) == ["overlapping_samples"] and found.ranks == (0, 1)
    few = make_run(ranks=2, change=lambda rank, step: overlap(rank, step) if step < 8 else {})
    assert told(few) == []  # 6 of them may be chance


def test_samples_drawn_with_replacement_overlap_rightly() -> None:
    def drawn(rank: int, step: int) -> dict[str, Any]:
        return {"samples": sample_text(*((37 * (40 * rank + step) ** 2 + 11 * idx) % 211 for idx in range(4)))}

    assert told(make_run(ranks=2, change=drawn)) == []


def test_samples_of_a_second_epoch_are_no_overlap() -> None:
    def dealt_anew(rank: int, step: int) -> dict[str, Any]:
        owner, place = ((rank + step // 20) % 2, step % 20)  # the second epoch swaps the ranks' parts
        return {"samples": sample_text(*own_samples(owner, place, 2))}

    assert told(make_run(ranks=2, change=dealt_anew)) == []


def test_overlap_against_the_baseline_is_a_lower_coverage() -> None:
    base = make_run(ranks=2, change=apart, events=own_start)
    both = make_run(ranks=2, change=lambda rank, step: {**apart(rank, step), **overlap(rank, step)}, events=own_start)
    found = finding_of("overlapping_samples", both, baseline=base)
    assert found.needs_baseline and found.evidence[0].expected == "1.00"
    assert told(both, baseline=both) == []


def test_missing_samples_are_those_of_the_baseline_that_never_come() -> None:
    def short(rank: int, step: int) -> dict[str, Any]:
        return {"samples": sample_text(*own_samples(rank, step % 30, 2))}

    assert told(make_run(ranks=2, change=short), baseline=make_run(ranks=2)) == ["missing_samples"]
    shifted = make_run(ranks=2, change=lambda rank, step: {"samples": sample_text(*own_samples(rank, step + 10, 2))})
    assert told(shifted, baseline=make_run(ranks=2)) == []  # other ones come in their place


def sized(size: int, *, num_samples: int, num_ranks: int) -> Any:
    """Return changes that deal the samples in order, `size` to a rank at a step, from the first again after the last."""

    def change(rank: int, step: int) -> dict[str, Any]:
        first = size * (num_ranks * step + rank)
        dealt = [number % num_samples for number in range(first, first + size)]
        return {"samples": sample_text(*dealt), "batch_hash": f"{size}-{rank}-{step}"}

    return change


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("size", [2, 8])
def test_other_size_of_the_batch_is_other_data_and_no_sample_is_missed_or_shared(ranks: int, size: int) -> None:
    base = make_run(ranks=ranks, change=sized(4, num_samples=170 * ranks, num_ranks=ranks))
    run = make_run(ranks=ranks, change=sized(size, num_samples=170 * ranks, num_ranks=ranks))
    assert told(run, baseline=base) == ["data_changed"]
    assert f"a step of rank 0 has {size} samples against 4" in finding_of("data_changed", run, baseline=base).summary


def test_samples_that_one_rank_alone_does_not_see_are_other_data() -> None:
    run = make_run(change=lambda rank, step: {"samples": sample_text(*own_samples(0, step % 20, 1)), "batch_hash": f"o{step}"})
    assert told(run, baseline=make_run()) == ["data_changed"]


def test_last_batch_of_an_epoch_may_be_smaller_though_samples_are_missing() -> None:
    def short(rank: int, step: int) -> dict[str, Any]:
        samples = own_samples(rank, step % 30, 2)
        return {"samples": sample_text(*(samples[:2] if step == 29 else samples))}

    assert told(make_run(ranks=2, change=short), baseline=make_run(ranks=2)) == ["missing_samples"]


@pytest.mark.parametrize("sharper", [same_batches, overlap])
def test_that_data_changed_is_told_after_what_is_wrong_with_them(sharper: Any) -> None:
    run = make_run(ranks=2, change=lambda rank, step: {"batch_hash": f"x{rank}-{step}", **sharper(rank, step)})
    found = judge(run, baseline=make_run(ranks=2))
    assert [finding.symptom for finding in found.findings][-1] == "data_changed"
    assert found.category is Category.SILENT_DISTRIBUTED


def test_precision_that_differs_names_the_odd_rank_and_the_first_step() -> None:
    def half(rank: int, step: int) -> dict[str, Any]:
        return {"dtypes": ("autocast:cpu:bfloat16", "param:float32")} if rank == 2 and step >= 5 else {}

    found = finding_of("precision_differs", make_run(ranks=3, change=half))
    assert (found.ranks, found.step) == ((2,), 5)
    twice = make_run(ranks=3, change=lambda rank, step: half(rank, 5) if step in (5, 6) else {})
    assert told(twice) == []
    experts = make_run(ranks=2, change=lambda rank, _: {"dtypes": ("param:float32",), "missing_grads": 1} if rank else {})
    assert told(experts, baseline=experts) == []
    stages = make_run(
        ranks=2,
        change=lambda rank, step: {**apart(rank, step), **({"dtypes": ("param:bfloat16",)} if rank else {})},
        events=lambda rank: {**own_start(rank), "first_batch": [Event("first_batch", 0, {"num_params": 1000 + rank})]},
    )
    assert told(stages) == []


def drifting(rank: int, step: int) -> dict[str, Any]:
    return {"param_hash": f"{rank if step >= 20 else ''}-{step}"} if step % 10 == 0 or step == 39 else {}


def test_parameters_of_replicas_that_part_are_told_with_the_step() -> None:
    found = finding_of("parameters_differ", make_run(ranks=2, change=drifting))
    assert (found.step, found.ranks) == (20, (0, 1))
    base = make_run(ranks=2, change=lambda _, step: {"param_hash": f"0-{step}" if step >= 20 else f"-{step}"})
    assert finding_of("parameters_differ", make_run(ranks=2, change=drifting), baseline=base).ranks == (1,)


def test_parameters_that_part_and_meet_again_are_averaged_now_and_then() -> None:
    run = make_run(ranks=2, change=lambda rank, step: {"param_hash": f"{rank}-{step}"} if step in (10, 30) else {})
    assert told(run) == []
    assert told(run, baseline=make_run(ranks=2)) == ["parameters_differ"]  # where they never should


def test_ranks_that_average_their_weights_at_steps_without_a_hash_are_silent() -> None:
    def local(rank: int, step: int) -> dict[str, Any]:
        return {**apart(rank, step), "collectives": "1:aa" if step % 4 == 3 else "0:00"}

    weights = [Event("collective", 3, {"idx": 0, "op": "all_reduce", "shape": [10], "dtype": "float32", "group": None})]
    assert told(make_run(ranks=2, change=local, events=lambda _: {"collective": weights})) == []
    scalar = [Event("collective", 3, {"idx": 0, "op": "all_reduce", "shape": [], "dtype": "float32", "group": None})]
    run = make_run(ranks=2, change=local, events=lambda _: {"collective": scalar})  # only the loss is averaged
    assert told(run) == ["gradients_not_averaged", "parameters_differ"]


def test_ranks_without_a_process_group_train_alone() -> None:
    none = {"process_group": [], "process_group_begin": [], "collective": []}
    run = make_run(ranks=2, change=lambda rank, step: {**apart(rank, step), "collectives": None}, events=lambda _: none)
    assert told(run) == ["gradients_not_averaged", "parameters_differ"]
    assert "no process group" in finding_of("parameters_differ", run).summary


def test_initial_parameters_of_replicas_that_differ_are_told_once() -> None:
    run = make_run(
        ranks=2, change=lambda rank, step: {"param_hash": f"p{rank}-{step}" if step % 10 == 0 else None}, events=own_start
    )
    assert told(run) == ["initial_parameters_differ"]  # equal gradients: they are replicas
    assert told(run, baseline=make_run(ranks=2)) == ["initial_parameters_differ"]
    shards = make_run(ranks=2, change=apart, events=own_start)
    assert told(shards) == [] and told(shards, baseline=shards) == []
    sizes = make_run(
        ranks=2, change=lambda rank, step: {"param_hash": f"p{rank}"}, events=lambda rank: own_start(rank, num_params=rank)
    )
    assert told(sizes) == []


@pytest.mark.parametrize(("factor", "symptom"), [(0.5, "gradients_averaged_twice"), (2.0, "gradients_not_averaged")])
def test_norm_before_clipping_off_by_the_number_of_ranks_is_told(factor: float, symptom: str) -> None:
    base = make_run(ranks=2, change=lambda _, step: {"clip_norm": 4.0 + 0.1 * step, "grad_norm": 0.2})
    run = make_run(ranks=2, change=lambda _, step: {"clip_norm": factor * (4.0 + 0.1 * step), "grad_norm": 0.2})
    found = finding_of(symptom, run, baseline=base)
    assert (found.step, found.stage, found.needs_baseline) == (0, Stage.REDUCTION, True)
    assert told(run, baseline=base) == [symptom]


def test_norm_off_by_another_factor_or_with_the_loss_is_no_averaging() -> None:
    base = make_run(ranks=2)
    third = make_run(ranks=2, change=lambda _, step: {"grad_norm": 3.0 * (1.0 + 0.1)})
    assert told(third, baseline=base) == []
    scaled = make_run(ranks=2, change=lambda rank, step: {"grad_norm": 2.0, "loss": 4.0 - 0.01 * step})
    same = make_run(ranks=2, change=lambda rank, step: {"grad_norm": 1.0, "loss": 2.0 - 0.005 * step})
    assert "gradients_not_averaged" not in told(scaled, baseline=same)
    one = make_run(change=lambda *_: {"grad_norm": 2.0})
    assert told(one, baseline=make_run(change=lambda *_: {"grad_norm": 1.0})) == []


def test_twice_the_norm_of_two_micro_batches_or_of_another_batch_is_no_averaging() -> None:
    def doubled(rank: int, step: int) -> dict[str, Any]:
        return {"grad_norm": 2.0, "loss": 2.0 - 0.01 * step}

    base = make_run(ranks=2, change=lambda rank, step: {**doubled(rank, step), "grad_norm": 1.0})
    assert "gradients_not_averaged" in told(make_run(ranks=2, change=doubled), baseline=base)
    accumulated = make_run(ranks=2, change=lambda rank, step: {**doubled(rank, step), "micro": (1.0, 1.0 - 0.01 * step)})
    assert told(accumulated, baseline=base) == []  # two losses that are not divided by two
    other = make_run(ranks=2, change=lambda rank, step: {**doubled(rank, step), "batch_hash": f"x{rank}-{step}"})
    assert told(other, baseline=base) == ["data_changed"]
    unknown = make_run(ranks=2, change=lambda rank, step: {**doubled(rank, step), "batch_hash": None})
    assert "gradients_not_averaged" in told(unknown, baseline=base)


def test_first_divergence_is_a_reduction_only_of_equal_work() -> None:
    def normed(norm: float, **more: Any) -> Fingerprint:
        return make_run(ranks=2, change=lambda rank, step: {"clip_norm": norm, "loss": 2.0, **more}).fingerprint

    whole, twice = first_divergence(normed(1.0), normed(2.0)), first_divergence(normed(1.0, micro=()), normed(2.0))
    assert whole is not None and whole.stage is Stage.REDUCTION
    assert twice is not None and (twice.signal, twice.stage) == ("clip_norm", Stage.GRADIENT)


def test_gradients_equal_in_the_baseline_and_own_here_are_not_averaged() -> None:
    run = make_run(ranks=2, change=lambda rank, step: {"grad_norm": 1.0 + 0.3 * rank})
    assert told(run, baseline=make_run(ranks=2)) == ["gradients_not_averaged"]
    assert told(run) == []  # reduced inside the optimizer's step: parameters agree


def test_collectives_that_differ_name_the_call_and_both_sides() -> None:
    def calls(rank: int) -> dict[str, list[Event]]:
        return {"collective": [collective(0, "all_reduce", [10]), collective(1, "all_reduce", [10 + rank])]}

    found = finding_of("collectives_differ", make_run(ranks=2, events=calls))
    assert "call 1" in found.summary and "[11] float32 on rank 1" in found.summary
    assert found.ranks == (0, 1)
    base = make_run(ranks=2, events=calls)
    assert told(base, baseline=base) == []


def test_collectives_that_differ_are_numbered_among_all_calls_of_the_rank() -> None:
    def calls(rank: int) -> dict[str, list[Event]]:
        own = [collective(idx, "all_reduce", [1], group=[rank]) for idx in range(2)]
        return {"collective": [*own, collective(2, "all_reduce", [8 - 4 * rank])]}

    found = finding_of("collectives_differ", make_run(10, ranks=2, events=calls))
    assert found.summary.startswith("collective call 2 differs between ranks: all_reduce [8] float32 on rank 0")
    assert [item.name for item in found.evidence] == ["collective call 2"] * 2

    def uneven(rank: int) -> dict[str, list[Event]]:
        own = [collective(idx, "all_reduce", [1], group=[rank]) for idx in range(rank)]
        return {"collective": [*own, collective(rank, "all_reduce", [8 - 4 * rank])]}

    apart = finding_of("collectives_differ", make_run(10, ranks=2, events=uneven))
    assert [item.name for item in apart.evidence] == ["collective call 0", "collective call 1"]
    assert "on rank 1 (its call 1)" in apart.summary


@pytest.mark.parametrize(
    "calls",
    [
        lambda rank: [collective(0, "all_to_all", [3 + rank])],
        lambda rank: [collective(0, "all_reduce", [3 + rank], group=[rank]), collective(1, "barrier", None, "")],
        lambda rank: [collective(idx, "all_reduce", [3]) for idx in range(4 + rank)],  # one is further on
        lambda rank: [collective(0, "barrier"), collective(70 + rank, f"late{rank}")],  # first calls only have all
    ],
)
def test_collectives_that_differ_rightly_are_silent(calls: Any) -> None:
    assert told(make_run(ranks=2, events=lambda rank: {"collective": calls(rank)})) == []


def test_rank_that_skips_a_branch_makes_fewer_calls() -> None:
    def fewer(rank: int, step: int) -> dict[str, Any]:
        return {"collectives": "1:ffff0000"} if (rank, step) == (1, 6) else {}

    found = finding_of("rank_skips_branch", make_run(ranks=3, change=fewer))
    assert (found.ranks, found.step) == ((1,), 6)
    shards = make_run(ranks=2, change=lambda rank, step: {**apart(rank, step), **fewer(rank, step)}, events=own_start)
    assert told(shards) == []
    skipped = make_run(ranks=2, change=lambda rank, step: {"skipped": True} if (rank, step) == (1, 6) else {})
    assert told(skipped) == ["rank_skips_branch"]
    both = make_run(ranks=2, change=lambda rank, step: {"skipped": True} if step < 3 else {})
    assert told(both) == []


def test_micro_batches_and_missing_gradients_of_one_rank_count_against_a_baseline() -> None:
    run = make_run(ranks=2, change=lambda rank, step: {"missing_grads": 2} if (rank, step) == (1, 6) else {})
    assert told(run) == [] and told(run, baseline=make_run(ranks=2)) == ["rank_skips_branch"]
    assert told(run, baseline=run) == []


def test_norms_over_ranks_are_combined_as_the_layout_asks() -> None:
    shards = RunView.of(
        make_run(ranks=2, change=lambda rank, step: {**apart(rank, step), "grad_norm": 3.0 + rank}, events=own_start)
    )
    assert shards.is_sharded and shards.pre_clip_norms[0] == pytest.approx(5.0)
    whole = RunView.of(make_run(ranks=2, change=lambda rank, step: {**apart(rank, step), "clip_norm": 5.0}, events=own_start))
    assert whole.pre_clip_norms[0] == 5.0
    own = RunView.of(make_run(ranks=2, change=lambda rank, step: {"grad_norm": 3.0 + rank}))
    assert own.pre_clip_norms[0] == pytest.approx(12.5**0.5)


def test_odd_ranks_are_the_minority_or_those_unlike_the_baseline() -> None:
    assert odd_ranks({0: "a", 1: "a", 2: "b"}) == [2]
    assert odd_ranks({0: "a", 1: "b"}) == [0, 1]
    assert odd_ranks({0: "a", 1: "b"}, {0: "a", 1: "a"}) == [1]
    assert odd_ranks({0: "c", 1: "b"}, {0: "a", 1: "a"}) == [0, 1]


@pytest.mark.parametrize("ranks", [2, 3])
def test_baseline_with_another_number_of_ranks_is_not_compared_between_ranks(ranks: int) -> None:
    run: ProbeResult = make_run(ranks=ranks, change=lambda rank, step: {"missing_grads": rank})
    assert told(run, baseline=make_run()) == []
    own = make_run(ranks=ranks, change=apart, events=own_start)
    assert told(own, baseline=make_run()) == []
