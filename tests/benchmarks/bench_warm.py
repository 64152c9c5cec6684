"""Measures a probe whose program is forked from a warm process against one that is a fresh process.

Run: python tests/benchmarks/bench_warm.py [--rounds N]
The same job (ten steps of a tiny model) runs by turns as a fresh process and as a fork, through the whole worker: checkout,
recorder, supervisor, records. Times are those of whole probes; the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from bisect_train_workers.injection import RECORDER_FOLDER
from tests.support.probes import TinyRepo, make_job, make_settings, result_of

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
for _ in range(10):
    loss = net(torch.randn(8, 16)).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
READY_S = 60.0


def main() -> None:
    """Print the medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="bt-") as name:
        home = Path(name) / "node"
        commit = TinyRepo(Path(name) / "repo").commit({"train.py": PROGRAM})
        job = make_job(commit, steps=10, settings=make_settings(warm=True))
        fresh_job = dataclasses.replace(job, is_fresh=True)
        result_of(fresh_job, home, recorder=RECORDER_FOLDER)  # begins the warm process, and fills the mirror
        deadline = time.monotonic() + READY_S
        while not list(home.glob("warm/*/socket")) and time.monotonic() < deadline:
            time.sleep(0.1)
        walls: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(rounds):
            for asked in (fresh_job, job):
                result = result_of(asked, home, recorder=RECORDER_FOLDER)
                assert result.is_warm is (asked is job) and result.fingerprint.num_steps == 10
                walls[result.is_warm].append(result.wall_s)
    fresh, warm = statistics.median(walls[False]), statistics.median(walls[True])
    print(f"fresh {fresh:.2f} s, forked {warm:.2f} s (medians of {rounds}); forked / fresh = {warm / fresh:.2f}")


if __name__ == "__main__":
    main()
