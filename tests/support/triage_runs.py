"""Runs of two ranks as the recorder would have them, for triage: samples, parameters, endings, stacks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bisect_train.core.fingerprint import Ending, EndingKind, Event, Fingerprint, RankRecord, StepRecord
from bisect_train.core.probe import ProbeResult

BATCH = 4  # samples of a rank in a step
STACK = """\
Current thread 0x00007f713dc5cb80 (most recent call first):
  File "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 5356 in barrier
  File "/env/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/node/checkout/train.py", line {line} in {name}
  File "/node/checkout/train.py", line 14 in <module>
"""


def sample_hash(number: int) -> str:
    """Return the recorder's hash of one sample, 8 hex digits."""
    return hashlib.sha256(f"sample {number}".encode()).hexdigest()[:8]


def dealt(rank: int, step: int) -> list[int]:
    """Return the samples of a healthy rank: each comes once."""
    return [2 * BATCH * step + 2 * idx + rank for idx in range(BATCH)]


def overlapping(rank: int, step: int) -> list[int]:
    """Return samples of which each rank has half of the other's; none comes twice on one rank."""
    return [BATCH * step + idx + rank * 2 * BATCH for idx in range(BATCH)]


def two_ranks(
    deal: Callable[[int, int], Sequence[int]] = dealt,
    *,
    seed_idx: int = 0,
    num_steps: int = 12,
    ending: Ending | None = None,
    nan_from: int | None = None,
    num_ranks: int = 2,
) -> Fingerprint:
    """Return a healthy data-parallel run, but for how samples are dealt, how it ends, and where its loss becomes NaN."""
    ranks = []
    for rank in range(num_ranks):
        rng = np.random.default_rng([seed_idx, rank])
        steps = []
        for step in range(num_steps):
            loss = 1.0 + 2.0 * math.exp(-step / 4.0) + 0.05 * float(rng.normal())
            if nan_from is not None and step >= nan_from:
                loss = math.nan
            numbers = [int(number) + 1000 * seed_idx for number in deal(rank, step)]
            steps.append(
                StepRecord(
                    step,
                    loss=loss,
                    micro=(loss,),
                    grad_norm=1.0 + 0.1 * float(rng.normal()),
                    lr=(0.1,),
                    param_norm=3.0 + 0.01 * step,
                    param_hash=hashlib.sha256(f"{seed_idx}/{step}/{nan_from}".encode()).hexdigest()[:16],
                    batch_hash=hashlib.sha256(repr(numbers).encode()).hexdigest()[:16],
                    step_s=0.1,
                    samples="".join(map(sample_hash, numbers)),
                    moved=1.0,
                )
            )
        first = [float(number) + 1000 * seed_idx for number in deal(rank, 0)]
        events = (Event("first_batch", 0, {"inputs": [[BATCH]], "values": [[0, first]]}), Event("stop", num_steps))
        ranks.append(RankRecord(rank, tuple(steps), events))
    return Fingerprint(ending or Ending(EndingKind.STOPPED), tuple(ranks), facts=(("world_size", str(num_ranks)),))


def hanging(*, num_steps: int = 3, seed_idx: int = 0) -> ProbeResult:
    """Return a run that hangs after some steps: rank 0 waits in a barrier of `save`, rank 1 in one of `main`."""
    ending = Ending(EndingKind.TIMEOUT, "timeout: hang", "stopped at the time limit of 60 s; no step for 55 s")
    run = two_ranks(num_steps=num_steps, seed_idx=seed_idx, ending=ending)
    run = replace(run, ranks=tuple(replace(rank, events=rank.events[:-1]) for rank in run.ranks))
    stacks = (
        ("stacks-rank0-pid11.txt", STACK.format(line=9, name="save")),
        ("stacks-rank1-pid12.txt", STACK.format(line=21, name="main")),
    )
    return ProbeResult("", run, wall_s=60.0, stacks=stacks, log_tail="training\n")


ANOMALY_LOG = """\
/env/lib/python3.11/site-packages/torch/autograd/graph.py:979: UserWarning: Error detected in SqrtBackward0. Traceback of \
forward call that caused the error:
  File "/node/checkout/train.py", line 6, in <module>
    loss_of(w).backward()
  File "/node/checkout/model.py", line 5, in loss_of
    return torch.sqrt(w).mul(0.0).sum()
 (Triggered internally at /pytorch/torch/csrc/autograd/python_anomaly_mode.cpp:122.)
  return Variable._execution_engine.run_backward(  # Calls into the C++ engine to run the backward pass
Traceback (most recent call last):
  File "/node/checkout/train.py", line 6, in <module>
    loss_of(w).backward()
RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.
"""
_REST = (
    "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), "
    "requires_grad=false (default), "
    "pinned_memory=false (default), memory_format=(nullopt)))"
)
DETAIL_LOG = (
    "[rank1]:[I1130 03:56:21 ProcessGroupWrapper.cpp:710] [Rank 1] Running collective: CollectiveFingerPrint(SequenceNumber=0, "
    f"OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float, {_REST}\n"
    "[rank0]:[I1130 03:56:21 ProcessGroupWrapper.cpp:710] [Rank 0] Running collective: CollectiveFingerPrint(SequenceNumber=0, "
    f"OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float, {_REST}\n"
    "[rank1]:[I1130 03:56:21 ProcessGroupWrapper.cpp:710] [Rank 1] Running collective: CollectiveFingerPrint("
    "SequenceNumber=1OpType=BARRIER)\n"
    "[rank0]:[I1130 03:56:21 ProcessGroupWrapper.cpp:710] [Rank 0] Running collective: CollectiveFingerPrint(SequenceNumber=1, "
    f"OpType=ALLREDUCE, TensorShape=[8], TensorDtypes=Float, {_REST}\n"
)
MISSING_LOG = (
    "[rank0]:[E1130 03:56:25.6 ProcessGroupGloo.cpp:2901] [Rank 0]: Rank 1 failed to pass monitoredBarrier in 8000 ms\n"
    "RuntimeError: [Rank 0]: Ranks 1 failed to pass monitoredBarrier in 8000 ms\n"
)
