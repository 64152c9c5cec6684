"""Gradients are averaged by the program itself, one collective a parameter; the weights are broadcast at the start."""

import os

import torch
import torch.distributed as dist
from torch import nn

rank = int(os.environ["RANK"])
world = int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
torch.manual_seed(37 + rank)
model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
for parameter in model.parameters():
    dist.broadcast(parameter.data, 0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

for step in range(24):
    points = torch.randn(32, 6)
    loss = nn.functional.mse_loss(model(points), points[:, :1] * points[:, 1:2])
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world
    optimizer.step()
    if step % 10 == 0:
        mean = loss.detach() / world
        dist.reduce(mean, 0)
        if rank == 0:
            print(f"step {step} loss {mean.item():.4f}")

dist.destroy_process_group()
