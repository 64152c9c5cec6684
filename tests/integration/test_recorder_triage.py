"""What the recorder takes for triage, on real training: parameters, gradients, samples, waits and collective calls."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from recorder_probe import TWO_RANKS, run_program, run_ranks

from bisect_train.core.fingerprint import EndingKind
from tests.support.recorded_training import events_named, fingerprint_recorded

pytest.importorskip("torch", reason="the recorder's integration tests train with torch")


# Two optimizers, two micro-batches of two rows a step, a closure at the end, and parameters that something is wrong with.
ODD_PARAMETERS = """
import torch, torch.nn as nn
torch.manual_seed(0)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.unused = nn.Parameter(torch.ones(3))
        self.zeroed = nn.Parameter(torch.ones(2))
        self.left_out = nn.Parameter(torch.ones(2))
        self.pair = nn.Parameter(torch.ones(2, 64))  # both halves get equal bits: a xor of all of them stays 0
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.wide = nn.Parameter(torch.zeros(40, 30).t())  # not contiguous
        self.tied = self.body.weight
    def forward(self, x, scale):
        out = self.body(x).sum() + (self.zeroed * 0).sum() + self.left_out.sum() + self.pair.sum() + self.frozen.sum()
        return (out + self.wide.sum()).pow(2) * scale["by"].mean()
model = Model()
first = torch.optim.SGD([model.body.weight, model.body.bias, model.unused, model.zeroed], lr=1e-5)
second = torch.optim.SGD([model.pair, model.wide], lr=1e-5)
for step in range(3):
    for part in range(2):
        rows = torch.arange(8.0).reshape(2, 4) + 10 * step + 100 * part
        loss = model(rows, scale={"by": torch.ones(1)}); loss.backward()
    first.step(); second.step(); first.zero_grad(); second.zero_grad()
    if step == 1: torch.save({"any": 1}, "some.pt")
def closure():
    second.zero_grad(); loss = model(torch.ones(2, 4), scale={"by": torch.ones(1)}); loss.backward(); return loss
second.step(closure)
print(model.body.weight.sum().item().hex(), model.wide.sum().item().hex())
try: model.load_state_dict({f"w{idx}": torch.ones(1) for idx in range(7)}, strict=False)
finally: del model.left_out, loss
"""


def test_recorder_tells_parameters_that_are_missing_zero_or_still(tmp_path: Path) -> None:
    plain = run_program(tmp_path, ODD_PARAMETERS, is_recorded=False)
    outcome = run_program(tmp_path, ODD_PARAMETERS, triage=True, checksum_every=2)
    assert outcome.status == 0, outcome.stderr
    assert outcome.stdout == plain.stdout
    assert outcome.events("recorder_error") == []
    early, late = outcome.events("gradients")
    assert early == {"missing": ["unused"], "zero": ["zeroed"], "num_missing": 1, "num_zero": 1, "num": 6}
    assert late == {"missing": [], "zero": [], "num_missing": 0, "num_zero": 0, "num": 2}, "of the closure's optimizer"
    (start,), (saved,) = outcome.events("initial_params"), outcome.events("checkpoint_saved")
    assert start["num_params"] == 20 + 9 + 128 + 1200
    assert math.isclose(start["param_norm"] ** 2, 9 + 128, rel_tol=0.05)
    assert saved["param_hash"] not in (None, start["param_hash"])
    loaded = next(e for e in outcome.events("checkpoint_loaded") if e["function"] == "load_state_dict")
    assert (loaded["unexpected"], loaded["unexpected_names"]) == (7, ["w0", "w1", "w2", "w3", "w4"])
    assert (loaded["missing"], len(loaded["missing_names"])) == (9, 5)
    steps = outcome.steps()
    assert [step.get("moved") is not None for step in steps] == [True, False, True, False], "the last: a parameter is gone"
    num_sampled, num_still = 16 + 4 + 3 + 2 + 2 + 128 + 256, 3 + 2 + 2
    assert steps[2]["moved"] == 1 - num_still / num_sampled
    assert outcome.events("still_params") == []


def test_recorder_tells_still_parameters_at_the_last_step(tmp_path: Path) -> None:
    outcome = run_program(tmp_path, ODD_PARAMETERS, steps=3)
    assert outcome.events("recorder_error") == []
    assert outcome.events("still_params") == [{"names": ["unused", "zeroed", "left_out"], "num": 3, "of": 7}]
    assert [event["missing"] for event in outcome.events("gradients")] == [["unused"], ["unused"]]
    assert not {"samples", "collectives", "data_s"} & outcome.steps()[1].keys(), "only where they were asked for"


def test_recorder_hashes_each_sample_and_shows_the_first_values(tmp_path: Path) -> None:
    outcome = run_program(tmp_path, ODD_PARAMETERS, triage=True, every_step=True)
    assert outcome.events("recorder_error") == []
    samples = [step["samples"] for step in outcome.steps()[:3]]
    assert [len(text) for text in samples] == [4 * 8] * 3
    assert len({text[idx : idx + 8] for text in samples for idx in range(0, 32, 8)}) == 12, "all rows differ"
    (first,) = outcome.events("first_batch")
    assert first["inputs"] == [[0, [2, 4], "torch.float32"], ["scale.by", [1], "torch.float32"]]
    assert first["values"] == [[0, [0.0, 1.0, 2.0, 3.0]], ["scale.by", [1.0]]]
    batches = [r for r in outcome.records if r.get("name") == "batch"]
    assert [batch["step"] for batch in batches] == [0, 1, 2, 3]
    assert [batch["data"]["values"][0][1][0] for batch in batches] == [0.0, 10.0, 20.0, 1.0]


LOST = """
import torch
model = torch.nn.Linear(300, 300, bias=False, dtype=torch.bfloat16)
model.weight.data.fill_(1.0)
optimizer = torch.optim.SGD(model.parameters(), lr=LR)
for _ in range(3):
    model(torch.ones(600, 300, dtype=torch.bfloat16)).float().mean().backward(); optimizer.step(); optimizer.zero_grad()
"""


@pytest.mark.parametrize(("lr", "moved", "num_still"), [("1e-4", 0.0, 1), ("1e4", 1.0, 0)])
def test_recorder_sees_updates_that_low_precision_loses(tmp_path: Path, lr: str, moved: float, num_still: int) -> None:
    outcome = run_program(tmp_path, LOST.replace("LR", lr))
    assert outcome.events("recorder_error") == []
    assert [step["moved"] for step in outcome.steps() if "moved" in step] == [moved] * 2
    assert outcome.events("still_params")[0]["num"] == num_still
    assert all("samples" not in step for step in outcome.steps())


def test_recorder_leaves_out_hashes_of_too_many_samples(tmp_path: Path) -> None:
    outcome = run_program(tmp_path, LOST.replace("LR", "1e-4"), triage=True)
    assert [step["samples"] for step in outcome.steps()] == [None] * 3


LOADER = """
import time, torch
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 12
    def __getitem__(self, idx): time.sleep(0.02); return torch.full((3,), float(idx))
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
model = torch.nn.Linear(3, 1); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for idx, x in enumerate(DataLoader(Slow(), batch_size=4, num_workers=WORKERS)):
    loss = model(x).mean() * (float("inf") if idx == 0 else 1.0)
    optimizer.zero_grad(); scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
"""


@pytest.mark.parametrize("num_workers", [0, 2])
def test_recorder_times_the_wait_for_data_and_survives_skipped_steps(tmp_path: Path, num_workers: int) -> None:
    outcome = run_program(tmp_path, LOADER.replace("WORKERS", str(num_workers)), triage=True)
    assert outcome.status == 0, outcome.stderr
    assert outcome.events("recorder_error") == []
    assert len(list(outcome.out.glob("*.jsonl"))) == 1, "workers stay silent"
    steps = outcome.steps()
    assert [step["skipped"] for step in steps] == [True, False, False]
    assert steps[0]["data_s"] >= 0.08, "four samples of 0.02 s"
    if not num_workers:
        assert all(0.08 <= step["data_s"] <= step["step_s"] for step in steps[1:])
    assert steps[0]["moved"] == 0.0 and steps[2]["moved"] == 1.0
    assert all(len(step["samples"]) == 32 for step in steps)


DISTRIBUTED = """
import os, sys, torch, torch.distributed as dist, torch.nn as nn
from torch.distributed import all_reduce, new_group
dist.init_process_group(backend="gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
alone = [dist.new_group([idx]) for idx in range(2)]
for step in range(4):
    loss = model(torch.full((2, 4), 1.0 + rank + step)).mean(); optimizer.zero_grad(); loss.backward(); optimizer.step()
    shown = loss.detach().clone()
    dist.barrier()
    all_reduce(shown, async_op=True).wait()
    dist.all_reduce(torch.ones(1), group=alone[rank])
    if SKIP: dist.broadcast(torch.zeros(3), 0)
    dist.all_gather_object([None, None], {"rank" * (1 + 50 * rank): step})
    if rank: dist.send(shown, 0)
    else: dist.recv(torch.zeros(()), 1)
    sys.stdout.write(f"{rank} {step} {shown.item().hex()}\\n"); sys.stdout.flush()
"""


def test_recorder_on_two_ranks_records_the_calls_that_the_program_makes(tmp_path: Path) -> None:
    source = DISTRIBUTED.replace("SKIP", "step == 1")
    plain = run_ranks(tmp_path, source, is_recorded=False)
    outcome = run_ranks(tmp_path, source)  # no setting: ranks are several
    assert sorted(outcome.stdout.split("\n")) == sorted(plain.stdout.split("\n"))
    assert outcome.events("recorder_error") == []
    for name in ("process_group_begin", "process_group"):
        assert [event["backend"] for event in outcome.events(name)] == ["gloo", "gloo"]
    calls = [[step["collectives"] for step in outcome.steps(rank)] for rank in (0, 1)]
    assert calls[0] == calls[1], "neither DDP's own, nor the smaller groups', nor send and recv"
    assert [text.split(":")[0] for text in calls[0]] == ["0", "3", "4", "3"]
    assert calls[0][1] == calls[0][3] != calls[0][2]
    events = [r for r in outcome.records if r.get("name") == "collective" and r["rank_of_file"] == 1]
    assert [event["data"]["op"] for event in events[:4]] == ["barrier", "all_reduce", "all_reduce", "all_gather_object"]
    assert [event["data"]["async"] for event in events[:3]] == [False, True, False]
    assert [event["data"]["group"] for event in events[:3]] == [None, None, [1]]
    assert (events[0]["data"]["shape"], events[1]["data"]["shape"], events[1]["data"]["dtype"]) == (None, [], "float32")
    hashes = {event["param_hash"] for event in outcome.events("initial_params")}
    assert len(hashes) == 1, "DDP has made them equal"


PARTING = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_reduce(torch.ones(2))
if rank == 0:
    while not os.path.exists("entered"): time.sleep(0.05)
    time.sleep(0.5)
    os._exit(1)
open("entered", "w").close()
dist.broadcast(torch.ones(2, 3), 0)
"""


def test_recorder_of_a_rank_that_waits_has_the_call_that_it_waits_in(tmp_path: Path) -> None:
    outcome = run_program(tmp_path, PARTING, launcher=TWO_RANKS)
    assert outcome.status != 0
    calls = [r for r in outcome.records if r.get("name") == "collective"]
    last = {r["rank_of_file"]: (r["data"]["op"], r["data"]["shape"]) for r in calls}
    assert last == {0: ("all_reduce", [2]), 1: ("broadcast", [2, 3])}


SHARDED = """
import sys, torch, torch.distributed as dist, torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
fully_shard = __import__("torch.distributed.fsdp", fromlist=["x"]).fully_shard
mesh = init_device_mesh("cpu", (2,))
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
for part in (*model, model): fully_shard(part, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.full((2, 4), 1.0 + rank)).pow(2).mean(); optimizer.zero_grad(); loss.backward(); optimizer.step()
    sys.stdout.write(f"{rank} {step} {loss.item().hex()}\\n"); sys.stdout.flush()
dist.destroy_process_group()
"""


def test_recorder_on_a_sharded_model_reads_local_parts_only(tmp_path: Path) -> None:
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("this torch has no fully_shard")
    plain = run_ranks(tmp_path, SHARDED, is_recorded=False)
    outcome = run_ranks(tmp_path, SHARDED, every_step=True)
    assert sorted(outcome.stdout.split("\n")) == sorted(plain.stdout.split("\n"))
    assert outcome.events("recorder_error") == []
    assert [event["of"] for event in outcome.events("still_params")] == [4, 2], "rank 1 holds nothing of the last layer"
    assert [event["num"] for event in outcome.events("still_params")] == [0, 0]
    assert len({event["param_hash"] for event in outcome.events("initial_params")}) == 2
    assert len(outcome.events("process_group")) == 2, "init_device_mesh starts the group"


COMPILED_CALL = """
import torch, torch.distributed as dist
from torch.distributed import all_reduce
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
@torch.compile(fullgraph=True, backend="aot_eager")
def reduced(x):
    y = x * 2
    all_reduce(y); dist.all_reduce(y)
    return y + 1
for _ in range(2):
    loss = model(torch.ones(2, 4)).mean(); optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(reduced(torch.ones(3)))
"""


def test_recorder_leaves_collective_calls_in_compiled_code_alone(tmp_path: Path) -> None:
    launcher = (*TWO_RANKS[:-1], "1")
    plain = run_program(tmp_path, COMPILED_CALL, is_recorded=False, launcher=launcher)
    outcome = run_program(tmp_path, COMPILED_CALL, launcher=launcher, triage=True)
    assert plain.status == 0, plain.stderr
    assert outcome.stdout == plain.stdout
    assert outcome.events("recorder_error") == []


NAN_INSIDE = """
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = torch.sqrt(model(torch.zeros(1, 2)) * 0).sum() * 0
loss.backward()
optimizer.step()
"""


def test_recorder_asked_for_anomalies_makes_torch_name_the_operation(tmp_path: Path) -> None:
    quiet = fingerprint_recorded(tmp_path / "quiet", NAN_INSIDE)
    assert quiet.ending.kind is EndingKind.FINISHED
    assert quiet.ranks[0].steps[0].grad_norm is not None and math.isnan(quiet.ranks[0].steps[0].grad_norm)
    asked = fingerprint_recorded(tmp_path / "asked", NAN_INSIDE, anomaly=True)
    assert asked.ending.kind is EndingKind.CRASHED
    assert "SqrtBackward0" in asked.ending.message


def test_probe_with_triage_brings_everything_into_the_fingerprint(tmp_path: Path) -> None:
    run = fingerprint_recorded(tmp_path / "probe", ODD_PARAMETERS, triage=True, steps=3)
    (rank,) = run.ranks
    assert (rank.steps[0].collectives, rank.steps[0].data_s) == ("0:00000000", 0.0)
    assert rank.steps[0].moved is not None and rank.steps[1].moved is None
    assert len(rank.steps[1].samples or "") == 32
    assert [event.step for event in events_named(rank, "gradients")] == [0, 2]
    assert [event.step for event in events_named(rank, "still_params")] == [2]
    assert events_named(rank, "device") == [], "of accelerators only"
