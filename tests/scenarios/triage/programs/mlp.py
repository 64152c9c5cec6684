"""A small network that learns a smooth function of random points."""

import torch
from torch import nn

torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
mix = torch.randn(8)

for step in range(120):
    inputs = torch.randn(64, 8)
    targets = torch.sin(inputs @ mix).unsqueeze(1)
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
