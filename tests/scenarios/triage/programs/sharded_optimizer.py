"""Data parallel, with the optimizer's state cut over the ranks."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
torch.manual_seed(38)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)))
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-2)
generator = torch.Generator().manual_seed(380 + rank)
teacher = torch.randn(8, 4)

for step in range(24):
    points = torch.randn(32, 8, generator=generator)
    loss = nn.functional.cross_entropy(model(points), (points @ teacher).argmax(dim=1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")

dist.destroy_process_group()
