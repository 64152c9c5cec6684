"""A small GPT that trains in a process of its own, with or without the recorder, and says what it saw. It imports no torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

RECORDER = Path(__file__).resolve().parents[2] / "workers" / "bisect_train_workers" / "recorder"
LIMIT_S = 240.0

PROGRAM = r"""
import contextlib, hashlib, json, sys, time
import torch, torch.nn as nn, torch.nn.functional as F
ask = json.loads(sys.argv[1])
device, steps, warm = torch.device(ask["device"]), ask["steps"], ask["warm"]
d, n, b, t = ask["shape"]
if ask["deterministic"]:
    torch.use_deterministic_algorithms(True)
torch.manual_seed(7)
is_cuda = device.type == "cuda"
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down, self.drop = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False), nn.Dropout(0.1)
    def forward(self, x):
        B, T, C = x.shape
        q, k, v = [y.view(B, T, 4, C // 4).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(C, 2)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.drop(self.down(F.gelu(self.up(self.ln2(x)))))
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(256, d), nn.Embedding(t, d)
        self.blocks, self.head = nn.Sequential(*[Block() for _ in range(n)]), nn.Linear(d, 256)
    def forward(self, idx, targets):
        x = self.blocks(self.emb(idx) + self.pos(torch.arange(idx.shape[1], device=idx.device)))
        return F.cross_entropy(self.head(x).view(-1, 256).float(), targets.view(-1))
model = GPT().to(device)
model.train()
# a cpu only rehearses: there the compiler itself would take minutes
net = torch.compile(model, backend="inductor" if is_cuda else "aot_eager") if ask["compile"] else model
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=is_cuda and ask["graph"])
scaler = torch.amp.GradScaler(device.type, enabled=ask["amp"] == "float16")
def autocast():
    return torch.autocast(device.type, getattr(torch, ask["amp"])) if ask["amp"] else contextlib.nullcontext()
data = torch.randint(256, (64, b, t + 1), generator=torch.Generator().manual_seed(1)).to(device)
losses = []
def step(idx):
    batch = data[idx % 64]
    opt.zero_grad(set_to_none=True)
    with autocast():
        loss = net(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    return loss
def wait():
    if is_cuda:
        torch.cuda.synchronize()
def timed(begin, num, reads):
    wait()
    start = time.perf_counter()
    for idx in range(begin, begin + num):
        loss = step(idx)
        losses.append(loss.item() if reads else loss.detach())
    wait()
    return (time.perf_counter() - start) / num
peaks = []
if ask["graph"]:
    x, y = data[0, :, :-1].clone(), data[0, :, 1:].clone()
    def whole():
        opt.zero_grad(set_to_none=True)
        loss = net(x, y)
        loss.backward()
        opt.step()
        return loss
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            whole()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    opt.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = whole()
    for idx in range(steps):
        x.copy_(data[idx % 64, :, :-1]); y.copy_(data[idx % 64, :, 1:])
        graph.replay()
        losses.append(loss.detach().clone())
    found = {}
else:
    for idx in range(warm):
        losses.append(step(idx).detach())
        if is_cuda:
            peaks.append(torch.cuda.max_memory_allocated())
    found = {"free_s": timed(warm, steps, False), "reading_s": timed(warm + steps, steps, True)}
wait()
digest = hashlib.sha256()
for name, value in sorted(model.state_dict().items()):
    digest.update(name.encode() + value.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes())
digest.update(" ".join(float(loss).hex() for loss in losses).encode())
found |= {"digest": digest.hexdigest()[:16], "last": float(losses[-1]), "peaks": peaks}
found["max_bytes"] = torch.cuda.max_memory_allocated() if is_cuda else None
found["num_params"] = sum(p.numel() for p in model.parameters())
print("FOUND " + json.dumps(found), flush=True)
"""
SHAPES = {
    # width, layers, batch, context
    "cuda": {"small": (64, 2, 12, 48), "medium": (768, 12, 8, 512)},
    "cpu": {"small": (32, 2, 4, 16), "medium": (64, 2, 8, 32)},
}


@dataclass(frozen=True)
class Training:
    """What is trained: `size` of SHAPES, `amp` a dtype's name or "", `graph` captures the whole step."""

    device: str
    size: str
    steps: int = 30
    warm: int = 8
    compile: bool = False
    deterministic: bool = False
    amp: str = ""
    graph: bool = False

    @property
    def name(self) -> str:
        """For a line of text, such as `small compile`."""
        return " ".join([self.size, "compile" if self.compile else "eager", *([self.amp] if self.amp else [])])

    def without(self, **changes: Any) -> Training:
        """Return it with changes."""
        return replace(self, **changes)


@dataclass(frozen=True)
class Trained:
    """What one process said, and the lines that the recorder wrote (without it none)."""

    found: dict[str, Any]
    lines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The recorder's lines of steps, the last of each step."""
        last = {line["step"]: line for line in self.lines if line["type"] == "step"}
        return [last[idx] for idx in sorted(last)]


class TrainingError(Exception):
    """A training ended badly; the message is the end of its output."""


def train(asked: Training, *, is_recorded: bool, cache: Path, settings: dict[str, Any] | None = None) -> Trained:
    """Train once in a new process.

    Args:
        asked: what.
        is_recorded: whether a copy of the recorder is on the path.
        cache: for compiled code, shared by runs.
        settings: further ones of the recorder.
    Raises:
        TrainingError: it failed or took too long.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(PROGRAM)
        env = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
        env |= {"TRITON_CACHE_DIR": str(cache / "triton")}
        if asked.device == "cpu":
            env |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        if is_recorded:
            shutil.copytree(RECORDER, folder / "recorder", ignore=shutil.ignore_patterns("__pycache__"))
            values = {"out": str(folder / "out"), "root": str(folder), **(settings or {})}
            (folder / "recorder" / "settings.json").write_text(json.dumps(values))
            env["PYTHONPATH"] = str(folder / "recorder")
        question = {**vars(asked), "shape": SHAPES[asked.device][asked.size]}
        command = [sys.executable, "train.py", json.dumps(question)]
        try:
            done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            raise TrainingError(f"{asked.name}: still running after {LIMIT_S:.0f} s") from None
        said = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
        if done.returncode or not said:
            raise TrainingError(f"{asked.name}: status {done.returncode}: {done.stderr.strip()[-600:]}")
        return Trained(json.loads(said[-1][6:]), read_lines(folder / "out") if is_recorded else [])


def read_lines(out: Path) -> list[dict[str, Any]]:
    """Return what the recorder wrote. Raises TrainingError where it wrote nothing."""
    files = sorted(out.glob("*.jsonl"))
    if not files:
        raise TrainingError("the recorder wrote nothing")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]
