"""A layer cut by columns over the ranks: all ranks see the same batch, and hold different weights of it."""

import os

import torch
import torch.distributed as dist
import torch.distributed.nn.functional
from torch import nn

rank = int(os.environ["RANK"])
world = int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")


class Cut(nn.Module):
    """Half of the hidden units; the outputs are summed over the ranks."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(350 + rank)
        self.wide = nn.Linear(8, 32 // world)
        self.out = nn.Linear(32 // world, 1, bias=False)

    def forward(self, inputs):
        return torch.distributed.nn.functional.all_reduce(self.out(self.wide(inputs).relu()))


model = Cut()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
torch.manual_seed(35)
for step in range(24):
    points = torch.randn(48, 8)
    loss = nn.functional.mse_loss(model(points), points[:, :1].abs()) / world
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 10 == 0:
        print(f"step {step} loss {world * loss.item():.4f}")

dist.destroy_process_group()
