"""Data parallel by torch's wrapper: the same start on all ranks, a share of the data each, one mean of the gradients."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["RANK"])
world = int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
torch.manual_seed(32)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
teacher = torch.randn(8, 3)
points = torch.randn(1200, 8)

for step in range(24):
    mine = points[step * 48 : step * 48 + 48][rank::world]
    loss = nn.functional.cross_entropy(model(mine), (mine @ teacher).argmax(dim=1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if rank == 0 and step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")

dist.barrier()
dist.destroy_process_group()
