"""Stand-ins in real processes: for modules that are not installed, and for CUDA and NCCL."""

from __future__ import annotations

from pathlib import Path

from tests.integration.recorder_probe import run_program, run_ranks

LOGGER = """
import importlib.util
import absent_logger as log
from absent_logger.sub.module import Thing, helper
from absent_logger import ConnectionError as Lost

assert importlib.util.find_spec("absent_other") is None
assert log.__version__ and log.run is log.run

@log.watched
def kept():
    return 7

@log.configured(level=3)
def kept_too():
    return 8

class Callback(log.Base):
    def __init__(self, x):
        super().__init__(x, y=2)
        self.x = x

with log.init(project="p") as run:
    run.log({"loss": 1.0})
    run.config["a"] = 1
    run.config.update({}, allow_val_change=True)
    run.summary.best = 3
assert run.summary.best is not None
assert kept() == 7 and kept_too() == 8 and Callback(4).x == 4 and Callback(4).on_end() is not None
assert list(log.items) == [] and not isinstance(3, log.Thing)
try:
    raise ValueError("its own")
except Lost:
    raise SystemExit("caught by a stand-in")
except ValueError:
    print("fine", repr(log.run))
"""


def test_missing_module_is_inert_and_noted(tmp_path: Path) -> None:
    done = run_program(tmp_path, LOGGER, stubs=["absent_logger"])
    assert done.status == 0, done.stderr
    assert "fine <stand-in for absent_logger.run>" in done.stdout
    assert done.events("stub") == [{"what": "absent_logger"}]


def test_missing_module_without_a_stub_still_stops_the_program(tmp_path: Path) -> None:
    done = run_program(tmp_path, "import absent_logger\n", stubs=["absent_other"])
    assert done.status == 1
    assert "No module named 'absent_logger'" in done.stderr


def test_real_module_wins_over_its_stub(tmp_path: Path) -> None:
    (tmp_path / "present.py").write_text("value = 5\n")
    source = "import sys\nimport present, json\nassert present.value == 5 and json.loads('1') == 1\n"
    source += "try:\n    import present.sub\nexcept ImportError:\n    print('no sub')\n"
    done = run_program(tmp_path, source, stubs=["present", "json", "unused"])
    assert (done.status, done.stdout) == (0, "no sub\n"), done.stderr
    assert done.events("stub") == []


CUDA = """
import io
import torch
from torch import nn

assert not torch.cuda.is_available()
device = torch.device("cuda:0")
torch.cuda.set_device(device)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8, device="cuda"), nn.GELU(), nn.Linear(8, 1)).to(device).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=False)
scaler = torch.amp.GradScaler("cuda", enabled=False)
generator = torch.Generator(device="cuda").manual_seed(3)
assert isinstance(generator, torch.Generator)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
data = torch.utils.data.DataLoader([torch.ones(4) * i for i in range(8)], batch_size=4, pin_memory=True)
for step, batch in zip(range(3), list(data) * 2):
    start.record()
    x = batch.pin_memory().to("cuda", non_blocking=True) + torch.randn(4, 4, device=device, generator=generator)
    y = torch.zeros(4, 1, device="cuda").to(0)
    with torch.autocast("cuda", dtype=torch.bfloat16), torch.cuda.stream(torch.cuda.Stream()):
        assert model(x).dtype == torch.bfloat16
        loss = nn.functional.mse_loss(model(x).float(), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    torch.cuda.synchronize()
    end.record()
    assert start.elapsed_time(end) >= 0.0
with torch.device("meta"):
    assert nn.Linear(2, 2).weight.device.type == "meta"
with torch.device("cuda"):
    assert nn.Linear(2, 2).weight.device.type == "cpu"
kept = io.BytesIO()
torch.save(model.state_dict(), kept)
kept.seek(0)
assert torch.load(kept, map_location="cuda")["0.weight"].device.type == "cpu"
print(torch.cuda.device_count(), torch.cuda.max_memory_allocated(), model[0].weight.device)
"""


def test_program_that_names_cuda_trains_on_the_cpu(tmp_path: Path) -> None:
    done = run_program(tmp_path, CUDA, shims=["cuda-as-cpu"])
    assert done.status == 0, done.stderr
    assert done.stdout == "1 0 cpu\n"
    assert done.events("shim") == [{"what": "cuda-as-cpu"}]
    assert len(done.steps()) == 3


def test_shifted_seeds_reach_generators_of_cuda(tmp_path: Path) -> None:
    draws = []
    for seed_idx in (0, 1, 1):
        source = (
            "import torch\ng = torch.Generator('cuda')\ng.manual_seed(5)\nprint(torch.rand(3, device='cuda', generator=g))\n"
        )
        done = run_program(tmp_path, source, shims=["cuda-as-cpu"], seed_idx=seed_idx)
        assert done.status == 0, done.stderr
        draws.append(done.stdout)
    assert draws[0] != draws[1] == draws[2]


def test_without_the_shim_a_program_that_names_cuda_stops(tmp_path: Path) -> None:
    done = run_program(
        tmp_path, "import torch\nif torch.cuda.is_available():\n    raise SystemExit(1)\ntorch.zeros(2).cuda()\n"
    )
    assert done.status == 1
    assert done.events("shim") == []


RANKS = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed import init_process_group

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
init_process_group(backend="nccl", device_id=torch.device("cuda", rank))
assert dist.get_backend() == "gloo" and rank % torch.cuda.device_count() == rank
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(3, 1).to(f"cuda:{rank}"), device_ids=[rank], output_device=rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
group = dist.new_group([0, 1], backend="nccl")
mesh = dist.device_mesh.init_device_mesh("cuda", (2,))
for step in range(2):
    loss = model(torch.ones(2, 3, device="cuda") * (rank + 1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
total = torch.ones(1, device="cuda")
dist.all_reduce(total, group=group)
assert total.item() == 2 and mesh.device_type == "cpu"
dist.destroy_process_group()
"""


def test_ranks_that_ask_for_nccl_talk_by_gloo(tmp_path: Path) -> None:
    done = run_ranks(tmp_path, RANKS, shims=["cuda-as-cpu"])
    assert [event["backend"] for event in done.events("process_group")] == ["gloo", "gloo"]
    assert [event["backend"] for event in done.events("process_group_begin")] == ["nccl", "nccl"]
    weights = {rank: [step["param_hash"] for step in done.steps(rank) if "param_hash" in step] for rank in (0, 1)}
    assert weights[0] == weights[1] and weights[0]
    assert len(done.steps(0)) == 2
