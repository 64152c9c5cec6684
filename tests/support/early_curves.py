"""Loss curves of a real, noisy training that never repeats itself: two variants, many runs of each.

python -m tests.support.early_curves   trains all runs anew and writes tests/data/early_curves.json.gz
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

CURVES = Path(__file__).parent.parent / "data" / "early_curves.json.gz"
NUM_STEPS, NUM_RUNS = 150, 48
LABEL_NOISE = {"good": 0.0, "bad": 0.02}  # the bad variant mixes up so many labels, from step 20 on
DIGITS = 6


def train_once(variant: str) -> list[float]:
    """Train a small classifier from fresh randomness of the system; return the loss of each step."""
    import torch

    torch.manual_seed(int.from_bytes(os.urandom(4), "big"))
    torch.set_num_threads(1)
    centres = torch.randn(8, 16, generator=torch.Generator().manual_seed(7))
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 8))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    losses = []
    for step in range(NUM_STEPS):
        labels = torch.randint(0, 8, (64,))
        inputs = centres[labels] + 1.2 * torch.randn(64, 16)
        if step >= 20:
            labels = torch.where(torch.rand(64) < LABEL_NOISE[variant], torch.randint(0, 8, (64,)), labels)
        loss = torch.nn.functional.cross_entropy(net(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def read_curves() -> dict[str, list[list[float]]]:
    """Return the losses by variant, run and step."""
    with gzip.open(CURVES, "rt") as file:
        curves: dict[str, list[list[float]]] = json.load(file)
    return curves


def main() -> None:
    """Write the file."""
    runs = {
        variant: [[float(f"{loss:.{DIGITS}g}") for loss in train_once(variant)] for _ in range(NUM_RUNS)]
        for variant in LABEL_NOISE
    }
    with CURVES.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as file:
        file.write(json.dumps(runs, separators=(",", ":")).encode())


if __name__ == "__main__":
    main()
