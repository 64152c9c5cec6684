"""A small classifier that DeepSpeed trains: `torchrun --nproc-per-node=2 train.py --deepspeed_config=ds_config.json`."""

from __future__ import annotations

import argparse
import hashlib

import deepspeed
import torch
from torch import nn


def make_data(num_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points in 16 dimensions, and which of four directions each is nearest to."""
    generator = torch.Generator().manual_seed(7)
    directions = torch.randn(16, 4, generator=generator)
    points = torch.randn(num_rows, 16, generator=generator)
    return points, (points @ directions).argmax(dim=1)


def parse() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1337)
    return deepspeed.add_config_arguments(parser).parse_args()


def digest(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters."""
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()


def main() -> None:
    """Train."""
    args = parse()
    torch.manual_seed(args.seed)
    layers = (nn.Linear(16, args.width), nn.ReLU(), nn.Linear(args.width, args.width), nn.ReLU(), nn.Linear(args.width, 4))
    model = nn.Sequential(*layers)
    engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
    rank, num_ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    points, targets = make_data(2048)
    order = torch.Generator().manual_seed(args.seed)
    size = engine.train_micro_batch_size_per_gpu()
    for step in range(args.steps):
        total = torch.zeros(())
        for _ in range(engine.gradient_accumulation_steps()):
            rows = torch.randint(len(points), (size * num_ranks,), generator=order)[rank * size : (rank + 1) * size]
            loss = nn.functional.cross_entropy(engine(points[rows]), targets[rows])
            engine.backward(loss)
            engine.step()
            total += loss.detach() / engine.gradient_accumulation_steps()
        deepspeed.comm.all_reduce(total)
        if rank == 0:
            print(f"step {step} loss {total.item() / num_ranks}", flush=True)
    if rank == 0:
        print("parameters", digest(engine.module), flush=True)


if __name__ == "__main__":
    main()
