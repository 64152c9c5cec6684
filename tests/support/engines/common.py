"""What the engines share: data, model, optimizer, and what a program prints of each step in full precision."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

NUM_STEPS = 4
NUM_ROWS = 8  # of the batch over all ranks
Engine = Callable[[], None]


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def say(step: int, **values: Any) -> None:
    """Print what the program itself knows of a step, one line of JSON."""
    sys.stdout.write(json.dumps({"step": step, **values}) + "\n")
    sys.stdout.flush()


class Net(nn.Module):
    """Parameters of several shapes, two of them no multiple of two ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.LayerNorm(8)
        self.second = nn.Linear(8, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.first(x)))
        out: torch.Tensor = self.last(torch.relu(self.second(hidden)))
        return out


def build() -> Net:
    torch.manual_seed(7)
    return Net()


def batch(step: int, *, part: int = 0, parts: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this part of the step's rows: every `parts`-th one."""
    generator = torch.Generator().manual_seed(100 + step)
    x, y = torch.randn(NUM_ROWS, 6, generator=generator), torch.randn(NUM_ROWS, 3, generator=generator)
    return x[part::parts].contiguous(), y[part::parts].contiguous()


def loss_of(model: Any, step: int, *, part: int | None = None, parts: int | None = None) -> torch.Tensor:
    """Return the mean loss on this rank's rows, or on those of a part."""
    x, y = batch(step, part=rank() if part is None else part, parts=parts or world_size())
    return functional.mse_loss(model(x), y)


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    """Return two parameter groups with rates of their own."""
    params = list(model.parameters())
    return [{"params": params[:2], "lr": 0.02}, {"params": params[2:], "lr": 0.01}]


def adamw(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(groups_of(model), lr=0.5)


def schedule(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1 + step))


def rates(*optimizers: Any) -> list[float]:
    return [float(group["lr"]) for optimizer in optimizers for group in optimizer.param_groups]


def whole(tensor: Any) -> torch.Tensor:
    """Return all of a tensor on every rank."""
    found: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return found.detach()


def norm_of(tensors: Iterable[Any]) -> float:
    """Return the norm over all elements of whole tensors, in double."""
    return math.sqrt(sum(float(whole(tensor).double().pow(2).sum()) for tensor in tensors if tensor is not None))


def grad_norm(model: nn.Module) -> float:
    return norm_of([param.grad for param in model.parameters()])


def say_digest(*values: Any) -> None:
    """Print a digest of the final state, this rank's part of it."""
    digest = hashlib.sha256()

    def feed(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            local = getattr(value, "_local_tensor", value).detach()
            digest.update(local.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                feed(value[key])
        elif isinstance(value, (list, tuple)):
            for item in value:
                feed(item)
        else:
            digest.update(repr(value).encode())

    feed(list(values))
    sys.stdout.write(json.dumps({"digest": digest.hexdigest()}) + "\n")
    sys.stdout.flush()
