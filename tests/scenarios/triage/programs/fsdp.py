"""Fully sharded: each rank holds its part of every parameter."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

rank = int(os.environ["RANK"])
world = int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
torch.manual_seed(34)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
for layer in model:
    if isinstance(layer, nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(340 + rank)

for step in range(24):
    points = torch.randn(32, 8, generator=generator)
    loss = nn.functional.cross_entropy(model(points), (points[:, 0] * points[:, 1] > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")

dist.destroy_process_group()
