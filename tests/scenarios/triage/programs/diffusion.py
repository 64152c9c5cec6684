"""A network tells the noise that was added to points on two circles."""

import torch
from torch import nn

torch.manual_seed(31)
model = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(80):
    angles = 6.2832 * torch.rand(64, 1)
    radius = 1.0 + torch.randint(2, (64, 1))
    points = radius * torch.cat([angles.cos(), angles.sin()], dim=1)
    times, noise = torch.rand(64, 1), torch.randn(64, 2)
    noisy = (1.0 - times).sqrt() * points + times.sqrt() * noise
    loss = nn.functional.mse_loss(model(torch.cat([noisy, times], dim=1)), noise)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
