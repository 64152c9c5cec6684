"""Weights in float32, computing in bfloat16."""

import torch
from torch import nn

torch.manual_seed(11)
model = nn.Sequential(nn.Linear(20, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
teacher = torch.randn(20, 3)

for step in range(60):
    inputs = torch.randn(64, 20)
    labels = (inputs @ teacher).argmax(dim=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
