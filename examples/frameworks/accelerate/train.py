"""A small classifier that accelerate prepares: `accelerate launch --cpu train.py --lr=0.1`."""

from __future__ import annotations

import argparse
import hashlib

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SCALE = 0.25


def make_data(num_rows: int) -> TensorDataset:
    """Return points in 16 dimensions, and which of four directions each is nearest to."""
    generator = torch.Generator().manual_seed(7)
    directions = torch.randn(16, 4, generator=generator)
    points = torch.randn(num_rows, 16, generator=generator) / SCALE
    return TensorDataset(points, (points @ directions).argmax(dim=1))


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--project_dir", default="runs")
    return parser.parse_args()


def digest(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters."""
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()


def main() -> None:
    """Train."""
    args = parse()
    set_seed(args.seed)
    accelerator = Accelerator(
        gradient_accumulation_steps=args.accumulation, log_with="tensorboard", project_dir=args.project_dir
    )
    accelerator.init_trackers("history")
    model = nn.Sequential(nn.Linear(16, args.width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(args.width, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    loader = DataLoader(make_data(1024), batch_size=args.batch_size, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses, step = [], 0
    for _ in range(args.epochs):
        for points, targets in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(points * SCALE), targets)
                accelerator.backward(loss)
                losses.append(accelerator.reduce(loss.detach(), reduction="mean").item())
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                accelerator.log({"train/loss": sum(losses) / len(losses)}, step=step)
                losses, step = [], step + 1
    accelerator.end_training()
    accelerator.print("parameters", digest(accelerator.unwrap_model(model)), flush=True)


if __name__ == "__main__":
    main()
