"""A trained network goes on with a small constant rate: the loss hardly falls, since there is little to learn."""

import torch
from torch import nn

torch.manual_seed(29)
teacher = torch.randn(8, 1)
model = nn.Linear(8, 1)
with torch.no_grad():
    model.weight.copy_(teacher.T + 0.02 * torch.randn(1, 8))
    model.bias.zero_()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

for step in range(60):
    inputs = torch.randn(32, 8)
    loss = nn.functional.mse_loss(model(inputs), inputs @ teacher + 0.3 * torch.randn(32, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
