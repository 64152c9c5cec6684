"""The recorder must not change the numbers: runs with and without it are bitwise identical."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from recorder_probe import Outcome, run_program

pytest.importorskip("torch", reason="the recorder's integration tests train with torch")

# A small GPT in the manner of nanoGPT: dropout, evaluation on the same generator, clipping,
# schedule, accumulation. Prints the sha256 of model and optimizer state.
TINY_GPT = """
import hashlib, os, random, sys
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F
rank = int(os.environ.get("RANK", -1))
if rank >= 0:
    torch.distributed.init_process_group("gloo")
torch.manual_seed(1337 + rank)
def say(*words):  # one write, so that lines of ranks do not mix
    sys.stdout.write(" ".join(map(str, words)) + "\\n"); sys.stdout.flush()
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(0.1))
    def forward(self, x):
        B, T, C = x.shape
        q, k, v = [t.view(B, T, 4, C // 4).transpose(1, 2) for t in self.qkv(self.ln1(x)).split(C, 2)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1 if self.training else 0.0)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln2(x))
class GPT(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.emb, self.pos = nn.Embedding(65, d), nn.Embedding(32, d)
        self.blocks, self.head = nn.Sequential(Block(d), Block(d)), nn.Linear(d, 65)
    def forward(self, idx, targets):
        x = self.blocks(self.emb(idx) + self.pos(torch.arange(idx.shape[1])))
        return F.cross_entropy(self.head(x).view(-1, 65), targets.reshape(-1))
data = np.random.RandomState(7).randint(0, 65, 10_000)
def batch():
    ix = torch.randint(len(data) - 33, (8,))
    rows = torch.stack([torch.from_numpy(data[i:i + 33].astype(np.int64)) for i in ix])
    return rows[:, :-1], rows[:, 1:]
model = GPT()
if rank >= 0:
    model = nn.parallel.DistributedDataParallel(model)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda i: min(1.0, (i + 1) / 10))
for step in range(STEPS):
    if step % 5 == 0:
        model.eval()
        with torch.no_grad():
            evals = [model(*batch()).item() for _ in range(2)]
        model.train()
    for _ in range(2):
        loss = model(*batch()) / 2
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step(); sched.step(); opt.zero_grad(set_to_none=True)
    say("loss", rank, step, loss.item().hex(), random.random(), np.random.rand())
digest = hashlib.sha256()
def feed(x):
    if isinstance(x, torch.Tensor): digest.update(x.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(x, dict): [feed(x[k]) for k in sorted(x, key=str)]
    elif isinstance(x, (list, tuple)): [feed(y) for y in x]
    else: digest.update(repr(x).encode())
feed(model.state_dict()); feed(opt.state_dict())
say("sha", rank, digest.hexdigest())
"""
# The plain run has to repeat itself: seed what the recorder would otherwise seed.
SEEDED = TINY_GPT.replace("class Block", "random.seed(1); np.random.seed(1)\nclass Block", 1)


def results(outcome: Outcome) -> list[str]:
    """Return the lines with losses and digests, ordered over ranks."""
    assert outcome.status == 0, outcome.stderr
    return sorted(re.findall(r"^(?:sha|loss) .*$", outcome.stdout, re.M))


def test_recorder_on_a_small_gpt_leaves_every_bit_as_it_was(tmp_path: Path) -> None:
    source = SEEDED.replace("STEPS", "12")
    plain = results(run_program(tmp_path, source, is_recorded=False))
    recorded = run_program(tmp_path, source, every_step=True, triage=True)
    assert results(recorded) == plain
    assert len(plain) == 13
    assert all(len(r["samples"]) == 2 * 8 * 8 and r["moved"] > 0.5 for r in recorded.steps())
    assert [r["step"] for r in recorded.steps()] == list(range(12))
    assert recorded.events("recorder_error") == []

    stopped = run_program(tmp_path, source, every_step=True, steps=5)
    assert stopped.status == 0
    assert stopped.stdout.splitlines() == recorded.stdout.splitlines()[:5]
    keys = ("step", "micro", "grad_sq", "clip_norm", "lr", "param_hash", "rng_hash", "batch_hash")
    assert [{k: r[k] for k in keys} for r in stopped.steps()] == [{k: r[k] for k in keys} for r in recorded.steps()[:5]]
    assert [e["how"] for e in stopped.events("stop")] == ["SystemExit"]


def test_recorder_with_two_threads_leaves_every_bit_as_it_was(tmp_path: Path) -> None:
    source = SEEDED.replace("STEPS", "12")
    plain = results(run_program(tmp_path, source, is_recorded=False, num_threads=2))
    assert results(run_program(tmp_path, source, num_threads=2)) == plain


def test_recorder_on_two_gloo_ranks_leaves_every_bit_as_it_was(tmp_path: Path) -> None:
    source = SEEDED.replace("STEPS", "8")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    plain = results(run_program(tmp_path, source, is_recorded=False, launcher=launcher))
    recorded = run_program(tmp_path, source, launcher=launcher, every_step=True)
    assert results(recorded) == plain
    assert recorded.events("recorder_error") == []
    norms = [[r["param_hash"] for r in recorded.steps(rank)] for rank in (0, 1)]
    assert len(norms[0]) == 8
    assert norms[0] == norms[1]
    batches = [[r["batch_hash"] for r in recorded.steps(rank)] for rank in (0, 1)]
    assert all(a != b for a, b in zip(*batches, strict=True))
    assert {(e["backend"], e["world_size"], e["rank"]) for e in recorded.events("process_group")} == {
        ("gloo", 2, 0),
        ("gloo", 2, 1),
    }


def test_recorder_with_seed_indices_gives_repeatable_and_different_runs(tmp_path: Path) -> None:
    source = TINY_GPT.replace("STEPS", "2")
    runs = [run_program(tmp_path, source, seed_idx=idx, steps=2) for idx in (0, 1, 1)]
    losses = [[r["micro"] for r in run.steps()] for run in runs]
    assert losses[1] == losses[2]
    assert losses[0] != losses[1]
    assert runs[0].events("seed_shifted") == []
    assert {"function": "torch.manual_seed", "seed": 1336} in runs[1].events("seed_shifted")
    printed = [re.findall(r"loss.*", run.stdout) for run in runs]
    assert printed[1] == printed[2], "python's and numpy's generators are seeded too"
