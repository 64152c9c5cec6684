"""L-BFGS calls its closure several times an update."""

import torch
from torch import nn

torch.manual_seed(14)
inputs = torch.randn(200, 5)
targets = torch.sin(inputs[:, :1]) + 0.5 * inputs[:, 1:2] ** 2 + 0.1 * torch.randn(200, 1)
model = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=4)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    return loss


for step in range(20):
    loss = optimizer.step(closure)
    print(f"step {step} loss {loss.item():.4f}")
