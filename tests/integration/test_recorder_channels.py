"""The second loading channel, and the seeds of torch's and numpy's generators."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recorder_probe import run_program

pytest.importorskip("torch", reason="the recorder's integration tests train with torch")

SHORT = """
import random
before = random.getstate()
import torch
print(torch.are_deterministic_algorithms_enabled(), random.getstate() == before)
model = torch.nn.Linear(2, 1); opt = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    for _ in range(9):
        model(torch.ones(1, 2)).sum().backward(); opt.step()
        if opt.param_groups[0]["lr"] < 0.05: raise FloatingPointError(f"diverged at {id(opt)} with 1e9")
        opt.param_groups[0]["lr"] /= 2
train()
"""


def test_recorder_shadowed_by_another_sitecustomize_is_loaded_by_torch(tmp_path: Path) -> None:
    shadow = tmp_path / "shadow"
    shadow.mkdir()

    (shadow / "sitecustomize.py").write_text("# the user's own")
    launcher = ("-c", LAUNCH.format(shadow=str(shadow)))
    outcome = run_program(tmp_path, SHORT, launcher=launcher, deterministic=True)
    assert outcome.status == 1, outcome.stdout
    starts = [r for r in outcome.records if r["type"] == "start"]
    assert [r["channel"] for r in starts if r["argv"] == ["train.py"]] == ["torch.backends"]
    assert outcome.stdout.split() == ["True", "True"], "python's generator may be seeded already: left alone"
    assert [r["lr"] for r in outcome.steps()] == [[0.1], [0.05], [0.025]]
    (error,) = outcome.events("exception")
    assert error["signature"] == "FloatingPointError: diverged at # with # @ <module> > train"
    assert outcome.events("recorder_error") == []


# Starts train.py with one more folder at the head of PYTHONPATH.
LAUNCH = """
import os, subprocess, sys
path = {shadow!r} + os.pathsep + os.environ["PYTHONPATH"]
sys.exit(subprocess.run([sys.executable, sys.argv[1]], env=dict(os.environ, PYTHONPATH=path)).returncode)
"""

SEEDS = """
import copy, json, pickle, random
import numpy as np, torch
r = {"unseeded": [random.random(), float(np.random.rand()), torch.rand(1).item()]}
def show(name, value): r[name] = float(value)
random.seed(S); show("random.seed", random.random())
show("Random", random.Random(S).random())
np.random.seed(S); show("np.random.seed", np.random.rand())
show("default_rng", np.random.default_rng(S).random())
show("default_rng list", np.random.default_rng([S, 1]).random())
state = np.random.RandomState(S); show("RandomState", state.rand())
state.seed(S); show("RandomState.seed", state.rand())
show("PCG64", np.random.Generator(np.random.PCG64(S)).random())
show("SeedSequence", np.random.SeedSequence(S).spawn(2)[1].generate_state(1)[0])
torch.manual_seed(S); show("torch.manual_seed", torch.rand(1))
torch.random.manual_seed(seed=S); show("torch.random.manual_seed", torch.rand(1))
generator = torch.Generator().manual_seed(S); show("Generator", torch.rand(1, generator=generator))
data = torch.utils.data.TensorDataset(torch.arange(64))
loader = torch.utils.data.DataLoader(data, 64, shuffle=True, generator=torch.Generator().manual_seed(S), num_workers=1)
show("DataLoader", next(iter(loader))[0][:4].dot(torch.tensor([1, 64, 4096, 262144])))
for value in (generator, state, random.Random(1), np.random.default_rng(1), np.random.PCG64(1)):
    twin, copied = pickle.loads(pickle.dumps(value)), copy.deepcopy(value)
assert torch.rand(1, generator=pickle.loads(pickle.dumps(generator))) == torch.rand(1, generator=generator)
assert isinstance(torch.default_generator, torch.Generator) and isinstance(np.random.mtrand._rand, np.random.RandomState)
assert isinstance(np.random.default_rng(1).bit_generator, np.random.PCG64) and not isinstance(3, torch.Generator)
print(json.dumps(r))
"""


def test_recorder_shifts_each_kind_of_seed_once_and_generators_still_pickle(tmp_path: Path) -> None:
    runs = []
    for seed, seed_idx, exempt in ((5, 0, []), (5 + 1_000_003, 0, []), (5, 1, []), (5, 1, [5])):
        outcome = run_program(
            tmp_path, SEEDS.replace("S)", f"{seed})").replace("[S,", f"[{seed},"), seed_idx=seed_idx, exempt_seeds=exempt
        )
        assert outcome.status == 0, outcome.stderr
        assert outcome.events("recorder_error") == []
        runs.append(json.loads(outcome.stdout))
        functions = {e["function"] for e in outcome.events("seed_shifted")}
        assert not any(name.startswith(("torch.cuda", "torch.mps", "torch.xpu")) for name in functions), "nested calls"
        assert ("torch.manual_seed" in functions) == (seed_idx == 1 and not exempt)
    base, by_hand, shifted, exempted = runs
    unseeded = [run.pop("unseeded") for run in runs]
    assert shifted == by_hand, "the same numbers as with seeds shifted by hand, so shifted exactly once"
    assert exempted == base
    assert all(shifted[name] != base[name] for name in base)
    assert unseeded[0] == unseeded[1] != unseeded[2] == unseeded[3]
