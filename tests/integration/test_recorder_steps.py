"""What counts as a step, and what its line says, over real optimizers, scalers and wrappers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from recorder_probe import run_program

pytest.importorskip("torch", reason="the recorder's integration tests train with torch")

# One process, several loops one after the other: importing torch is what takes the time.
LOOPS = """
import torch, torch.nn as nn, copy, io, os
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
first, second = list(model[0].parameters()), list(model[1].parameters())
x = torch.ones(2, 4)
def loss_of(): return model(x).pow(2).mean()
def marked(name): print(name, flush=True)

# 0: two optimizers are one step
a, b = torch.optim.SGD(first, lr=0.1), torch.optim.Adam(second, lr=0.2)
loss_of().backward(); a.step(); b.step()
# 1: a closure computes gradients inside the step
a.zero_grad(); b.zero_grad(); b = torch.optim.SGD(model.parameters(), lr=0.0)
def closure():
    b.zero_grad(); loss = loss_of(); loss.backward(); return loss
b.step(closure)
# 2: a container is an optimizer itself; only its parts count
class Container(torch.optim.Optimizer):
    def __init__(self, parts):
        self.parts = parts
        super().__init__([p for o in parts for g in o.param_groups for p in g["params"]], {"lr": 99.0})
    def step(self, closure=None):
        for part in self.parts: part.step()
container = Container([torch.optim.SGD(first, lr=0.0), torch.optim.SGD(second, lr=0.0)])
loss_of().backward(); container.step()
# 3: loss scaled by a gradient scaler, and 4: a step that it skips
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
loss = loss_of(); b.zero_grad(); scaler.scale(loss).backward(); scaler.step(b); scaler.update()
b.zero_grad(); scaler.scale(loss_of() * float("inf")).backward(); scaler.step(b); scaler.update()
# 5: a frozen and an unused parameter, accumulation of 3, loss changed in place afterwards, autocast
extra = nn.Parameter(torch.ones(3)); frozen = nn.Parameter(torch.ones(3), requires_grad=False)
c = torch.optim.AdamW([{"params": [*model.parameters(), extra, frozen]}], lr=0.3)
model.zero_grad()
with torch.autocast("cpu", dtype=torch.bfloat16):
    for _ in range(3):
        loss = loss_of() / 3; loss.backward(); loss.mul_(0)
torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
c.step()
# an evaluation closes the step, copies and pickles of the model carry nothing of the recorder
model.eval()
with torch.no_grad(): model(x)
model.train()
copy.deepcopy(model)(x); buffer = io.BytesIO(); torch.save(model, buffer)
print("clean", b"bisect" not in buffer.getvalue())
model.load_state_dict({"0.weight": torch.zeros(4, 4), "odd": x}, strict=False)
# 6: ends without another forward, and without exit handlers
loss_of().backward(); c.step()
os._exit(0)
"""


def test_recorder_over_kinds_of_optimizers_counts_steps_not_fires(tmp_path: Path) -> None:
    outcome = run_program(tmp_path, LOOPS, checksum_every=3, triage=True)
    assert outcome.status == 0, outcome.stderr
    assert outcome.events("recorder_error") == []
    two, closure, container, scaled, skipped, mixed, last = outcome.steps()
    assert (two["fires"], two["optimizers"], two["lr"]) == (2, ["SGD", "Adam"], [0.1, 0.2])
    assert len(two["micro"]) == 1
    assert (closure["fires"], closure["missing_grads"]) == (1, 0)
    assert closure["grad_norm"] > 0
    assert (container["fires"], container["optimizers"], container["lr"]) == (2, ["SGD", "SGD"], [0.0, 0.0])
    assert math.isclose(scaled["loss"], closure["loss"], rel_tol=1e-6)
    assert math.isclose(scaled["grad_norm"], closure["grad_norm"], rel_tol=1e-5)
    assert (skipped["skipped"], skipped["fires"], scaled["skipped"]) == (True, 0, False)
    assert (mixed["missing_grads"], mixed["autocast"]) == (1, "cpu:bfloat16")
    assert len(mixed["micro"]) == 3
    assert math.isclose(mixed["loss"], scaled["loss"], rel_tol=0.05), "read before the loss was changed in place"
    assert mixed["clip_norm"] > 1e-3 >= mixed["grad_norm"] * 0.999
    assert mixed["grad_dtypes"] == ["float32"]
    assert last["provisional"] is True, "written although os._exit ran no handlers"
    assert ["param_hash" in r for r in outcome.steps()] == [True, False, False, True, False, False, True]
    assert "clean True" in outcome.stdout
    loaded = next(e for e in outcome.events("checkpoint_loaded") if e["function"] == "load_state_dict")
    assert (loaded["missing"], loaded["unexpected"]) == (3, 1)
    assert outcome.events("first_batch")[0]["root"] == "Sequential"


COMPILED = """
import torch, torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
x = torch.ones(2, 4)
frames = []
def backend(graph, inputs):
    frames.append(len(list(graph.graph.nodes)))
    return graph.forward
compiled = torch.compile(model, backend=backend) if KIND == "wrapped" else model
if KIND == "in_place": model.compile(backend=backend)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
compiled.eval()
with torch.no_grad(): compiled(x)
compiled.train()
for _ in range(4):
    loss = compiled(x).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()
print("frames", frames, loss.item().hex())
"""


@pytest.mark.parametrize("kind", ["wrapped", "in_place"])
def test_recorder_on_a_compiled_model_adds_no_graph_and_sees_batches(tmp_path: Path, kind: str) -> None:
    source = COMPILED.replace("KIND", repr(kind))
    plain = run_program(tmp_path, source, is_recorded=False)
    recorded = run_program(tmp_path, source, triage=True)
    assert plain.status == 0, plain.stderr
    assert recorded.stdout == plain.stdout
    assert recorded.stderr == plain.stderr
    assert [r["batch_hash"] is not None for r in recorded.steps()] == [True] * 4
    assert recorded.events("recorder_error") == []


STUBBORN = """
import os, torch, torch.nn as nn
model = nn.Linear(2, 1); opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.ones(64, 2), batch_size=4, num_workers=2)
for step, x in enumerate(data):
    if step == 0:  # a fork that trains is neither recorded nor stopped
        child = os.fork()
        if child == 0:
            for _ in range(6): model(x).mean().backward(); opt.step()
            os._exit(7)
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    try:
        loss = model(x).mean(); opt.zero_grad(); loss.backward(); opt.step()
        print("logged", step)
    except:
        print("swallowed", step)
print("never")
"""


def test_recorder_stop_that_is_swallowed_ends_the_program_at_the_next_forward(tmp_path: Path) -> None:
    outcome = run_program(tmp_path, STUBBORN, steps=3, triage=True)
    assert outcome.status == 0, outcome.stderr
    assert outcome.stdout.split("\n") == ["child 7", "logged 0", "logged 1", "logged 2", "swallowed 3", ""]
    assert [e["how"] for e in outcome.events("stop")] == ["SystemExit", "os._exit"]
    assert len(outcome.steps()) == 3
    assert len(list(outcome.out.glob("*.jsonl"))) == 1, "forked DataLoader workers stay silent"
    assert outcome.events("exit") == [{"exit": "os._exit", "code": 0}]


COUNTED_FIRST = """
import torch
from torch import nn
def net(): return nn.Linear(4, 1)
with torch.device("meta"):  # operations are counted on a model without data, as litgpt does before it trains
    counted = net(); counted(torch.randn(2, 4)).sum().backward()
torch.manual_seed(0)
model = net(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    loss = model(torch.randn(2, 4)).pow(2).mean(); loss.backward(); optimizer.step(); optimizer.zero_grad()
    print(repr(loss.item()), flush=True)
"""


def test_model_without_data_that_only_counts_operations_is_no_training(tmp_path: Path) -> None:
    outcome = run_program(tmp_path, COUNTED_FIRST, steps=5)
    assert outcome.events("recorder_error") == []
    steps, printed = outcome.steps(), [float(line) for line in outcome.stdout.splitlines()]
    assert len(steps) == 5 and [step["loss"] for step in steps] == printed[:5]
    assert outcome.events("initial_params")[0]["num_params"] == 5
