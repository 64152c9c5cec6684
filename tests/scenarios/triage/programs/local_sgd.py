"""Each rank trains alone for four steps, then the weights are averaged: between two averages they differ on purpose."""

import os

import torch
import torch.distributed as dist
from torch import nn

rank = int(os.environ["RANK"])
world = int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
torch.manual_seed(39)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(390 + rank)

for step in range(24):
    points = torch.randn(32, 8, generator=generator)
    loss = nn.functional.cross_entropy(model(points), (points[:, 0] > points[:, 1]).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        for parameter in model.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= world
    if rank == 0 and step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")

dist.destroy_process_group()
