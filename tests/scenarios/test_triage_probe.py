"""`probe --triage` and `compare` on real trainings: the operation that gives NaN, the data that two ranks share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.git_repos import UserRepo

TRAIN_PY = """\
import os
import random

import torch
import torch.distributed as dist

import settings

if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    dist.init_process_group("gloo")
rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
torch.manual_seed(7)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
model = torch.nn.parallel.DistributedDataParallel(net) if dist.is_initialized() else net
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data = torch.randn(512, 8, generator=torch.Generator().manual_seed(1))
order = list(range(512))
random.Random(3 + rank * settings.PER_RANK).shuffle(order)
mine = order[rank::world]
for step in range(100):
    x = data[mine[step * 16 % len(mine):][:16]]
    out = model(x)
    loss = ((out - x.sum(1, keepdim=True)) ** 2).mean()
    if step == settings.NAN_AT:
        loss = loss + torch.sqrt(out.mean() * 0 - 1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> UserRepo:
    """Commits `good`, `overlap` (the shuffle is seeded by rank) and `nan` (the root of -1 at step 4)."""
    made = UserRepo.create(tmp_path_factory.mktemp("triage") / "repo")
    for name, values in (("good", (0, -1)), ("overlap", (1, -1)), ("nan", (0, 4))):
        made.commit({"train.py": TRAIN_PY, "settings.py": "PER_RANK, NAN_AT = {}, {}\n".format(*values)}, message=name)
        made.git("tag", name)
    return made


@pytest.mark.scenario
@pytest.mark.timeout(600)
def test_probe_triage_of_a_real_nan_names_the_step_and_the_operation(repo: UserRepo, tmp_path: Path) -> None:
    line, place = CommandLine(repo.path, tmp_path / "home"), tmp_path / "probe.json"
    args = ("--rev", "nan", "--steps", "8", "--json", str(place), "--", "python", "train.py")
    status, said = line.run("probe", "--triage", *args)
    print(said)
    triage = json.loads(place.read_text())["triage"]
    first = triage["findings"][0]
    assert status == 0 and (first["category"], first["symptom"], first["step"]) == ("wont_converge", "nan_loss", 4)
    assert triage["second_look"]["kind"] == "anomaly"
    assert triage["second_look"]["said"][0].startswith("SqrtBackward0, the backward pass of sqrt, gave the first NaN")
    assert "train.py:25" in triage["second_look"]["said"][1]
    line.wait_until_gone([], limit_s=10.0)


@pytest.mark.scenario
@pytest.mark.timeout(600)
def test_compare_of_real_ranks_names_the_overlap_and_the_rank_whose_data_changed(repo: UserRepo, tmp_path: Path) -> None:
    line, place = CommandLine(repo.path, tmp_path / "home"), tmp_path / "compare.json"
    args = ("--ranks", "2", "--steps", "12", "--json", str(place), "--", "python", "train.py")
    status, said = line.run("compare", "good", "overlap", *args)
    print(said)
    data = json.loads(place.read_text())
    assert status == 0 and data["triage_left"]["findings"] == []
    assert (data["triage"]["category"], data["triage"]["symptom"]) == ("silent_distributed", "overlapping_samples")
    assert data["first_divergence"]["stage"] == "data" and data["first_divergence"]["rank"] == 1
    assert [pair["rank"] for pair in data["triage"]["samples"]] == [1], "rank 0's data are as they were"
    line.wait_until_gone([], limit_s=10.0)
