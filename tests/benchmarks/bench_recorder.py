"""Measures the recorder's own time per training step, as a share of the step, at default settings.

Run: python tests/benchmarks/bench_recorder.py [--full] [--triage] [--rounds N]
Each model trains in processes of its own, without the recorder and under a copy of it by turns.

- step: tenth percentile of the steps' processor time (one thread) WITHOUT the recorder, median over
  the rounds: the step on a core that nobody else wants; wall time on a busy machine would flatter us;
- self: the recorder's time per step as its lines report it (everything inside its hooks), after
  warm-up: 0.9 x the median of plain steps plus 0.1 x the median of steps with checksums, median
  over the rounds. p10: tenth percentile of all steps. With --full, rows that checksum each step; with --triage,
  rows with what only triage takes (hashes of samples, waits for data, collective calls);
- share = self / step, against the goal: 3 % of a step of about 8 ms, 1 % of about 200 ms;
- wall: median step time with the recorder over that without, median over the rounds; for information,
  since on a shared machine it is mostly noise.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

RECORDER = Path(__file__).parents[2] / "workers" / "bisect_train_workers" / "recorder"
NUM_WARMUP_STEPS = 10

# A GPT in the manner of nanoGPT: width, layers, batch and context length are the arguments.
PROGRAM = """
import json, sys, time, torch, torch.nn as nn, torch.nn.functional as F
d, n, b, t, steps = map(int, sys.argv[1:])
torch.set_num_threads(1)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)
    def forward(self, x):
        B, T, C = x.shape
        q, k, v = [y.view(B, T, 4, C // 4).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(C, 2)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.ln2(x))))
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(65, d), nn.Embedding(t, d)
        self.blocks, self.head = nn.Sequential(*[Block() for _ in range(n)]), nn.Linear(d, 65)
    def forward(self, idx, targets):
        x = self.blocks(self.emb(idx) + self.pos(torch.arange(t)))
        return F.cross_entropy(self.head(x).view(-1, 65), targets.view(-1))
model = GPT()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
times = []
for _ in range(steps):
    times.append((time.perf_counter(), time.process_time()))
    x, y = torch.randint(65, (b, t)), torch.randint(65, (b, t))
    opt.zero_grad(set_to_none=True)
    model(x, y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
durations = [[v - u for u, v in zip(a, b)] for a, b in zip(times, times[1:])]
print(json.dumps([sum(p.numel() for p in model.parameters()), durations]))
"""
# name -> (width, layers, batch, context, steps), and the goal as a share of the step.
CASES = {
    "tiny": (("64", "2", "12", "48", "310"), 0.03),
    "7M": (("384", "4", "4", "96", "61"), 0.01),
}


@dataclass(frozen=True)
class Run:
    """One training process: parameters, and times in s per step after warm-up (self_s: recorded runs only)."""

    num_params: int
    step_s: list[float]
    cpu_s: list[float]
    self_s: list[float]


def run_program(arguments: tuple[str, ...], *, is_recorded: bool, every_step: bool = False, triage: bool = False) -> Run:
    """Train once, with or without the recorder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(PROGRAM)
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        if is_recorded:
            shutil.copytree(RECORDER, folder / "recorder", ignore=shutil.ignore_patterns("__pycache__"))
            settings = {"out": str(folder / "out"), "root": str(folder), "every_step": every_step, "triage": triage}
            (folder / "recorder" / "settings.json").write_text(json.dumps(settings))
            env["PYTHONPATH"] = str(folder / "recorder")
        command = [sys.executable, "train.py", *arguments]
        printed = subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, text=True).stdout
        num_params, times = json.loads(printed)
        step_s, cpu_s = (list(values) for values in zip(*times[NUM_WARMUP_STEPS:], strict=True))
        return Run(num_params, step_s, cpu_s, read_self_s(folder / "out") if is_recorded else [])


def read_self_s(out: Path) -> list[float]:
    """Return the self-time in s of each step after warm-up; the first has checksums, and every tenth after it."""
    (file,) = out.glob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    steps = {line["step"]: line["self_s"] for line in lines if line["type"] == "step"}
    return [steps[idx] for idx in sorted(steps) if idx >= NUM_WARMUP_STEPS]


def typical_self_s(self_s: list[float], *, every_step: bool) -> float:
    """Return the mean self-time in s without the spikes of a shared machine."""
    if every_step:
        return statistics.median(self_s)
    plain = [value for idx, value in enumerate(self_s) if idx % 10]
    return 0.9 * statistics.median(plain) + 0.1 * statistics.median(self_s[::10])


def p10(values: list[float]) -> float:
    """Return the tenth percentile."""
    return statistics.quantiles(values, n=10)[0]


def measure(name: str, *, num_rounds: int, every_step: bool = False, triage: bool = False) -> bool:
    """Print the row of one case; tell whether it meets its goal."""
    arguments, goal = CASES[name]
    pairs = []
    for _ in range(num_rounds):
        plain = run_program(arguments, is_recorded=False)
        pairs.append((plain, run_program(arguments, is_recorded=True, every_step=every_step, triage=triage)))
    step_s = statistics.median([p10(plain.cpu_s) for plain, _ in pairs])
    self_s = statistics.median([typical_self_s(run.self_s, every_step=every_step) for _, run in pairs])
    p10_s = statistics.median([p10(run.self_s) for _, run in pairs])
    wall = statistics.median([statistics.median(run.step_s) / statistics.median(plain.step_s) for plain, run in pairs])
    label = name + (" (each step)" if every_step else "") + (" (triage)" if triage else "")
    print(
        f"{label:<17}{pairs[0][0].num_params:>9}{step_s * 1e3:>9.2f}{self_s * 1e3:>9.3f}"
        f"{p10_s * 1e3:>8.3f}{self_s / step_s:>8.2%}{goal:>6.0%}{wall:>7.3f}",
        flush=True,
    )
    return self_s / step_s <= goal


def main() -> int:
    """Print the table; the status is 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description="The recorder's own time per training step.")
    parser.add_argument("--full", action="store_true", help="also with checksums at each step, for which there is no goal")
    parser.add_argument("--triage", action="store_true", help="also with what only triage takes")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind (default: 3)")
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {options.rounds} rounds")
    print(f"{'case':<17}{'params':>9}{'step ms':>9}{'self ms':>9}{'p10 ms':>8}{'share':>8}{'goal':>6}{'wall':>7}")
    is_met = True
    for name in CASES:
        is_met = measure(name, num_rounds=options.rounds) and is_met
        if options.triage:
            measure(name, triage=True, num_rounds=options.rounds)
        if options.full:
            measure(name, every_step=True, num_rounds=options.rounds)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
