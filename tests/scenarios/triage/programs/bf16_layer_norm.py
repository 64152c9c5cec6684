"""Weights in bfloat16 and a layer norm, whose scale of 1 outlives small updates by rounding."""

import torch
from torch import nn

torch.manual_seed(44)
model = nn.Sequential(nn.Linear(16, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 4)).to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
centres = 2.0 * torch.randn(4, 16)

for step in range(60):
    labels = torch.randint(4, (64,))
    inputs = (centres[labels] + torch.randn(64, 16)).to(torch.bfloat16)
    loss = nn.functional.cross_entropy(model(inputs).float(), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
