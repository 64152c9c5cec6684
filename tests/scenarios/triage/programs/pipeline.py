"""Two stages: rank 0 sends activations on, rank 1 has the loss and sends the gradient back."""

import os

import torch
import torch.distributed as dist
from torch import nn

rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
torch.manual_seed(36)
stages = [nn.Sequential(nn.Linear(8, 32), nn.Tanh()), nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))]
model = stages[rank]
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

for step in range(24):
    points = torch.randn(32, 8)
    labels = (points[:, 0] > 0).long()
    optimizer.zero_grad()
    if rank == 0:
        hidden = model(points)
        dist.send(hidden.detach(), 1)
        grad = torch.empty_like(hidden)
        dist.recv(grad, 1)
        hidden.backward(grad)
    else:
        hidden = torch.empty(32, 32)
        dist.recv(hidden, 0)
        hidden.requires_grad_(True)
        loss = nn.functional.cross_entropy(model(hidden), labels)
        loss.backward()
        dist.send(hidden.grad, 0)
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    optimizer.step()

dist.destroy_process_group()
