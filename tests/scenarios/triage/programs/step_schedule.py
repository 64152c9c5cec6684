"""The rate falls to a tenth in steps, and once where the loss no longer falls."""

import torch
from torch import nn

torch.manual_seed(24)
model = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[30, 50])
careful = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=4)

for step in range(70):
    inputs = torch.randn(64, 5)
    loss = nn.functional.mse_loss(model(inputs), torch.cos(inputs[:, :1]) * inputs[:, 1:2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    careful.step(loss.item())
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
