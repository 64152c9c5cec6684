"""Weights, activations and gradients in bfloat16, with a rate that is large enough for them."""

import torch
from torch import nn

torch.manual_seed(5)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
centres = 2.0 * torch.randn(4, 16)

for step in range(60):
    labels = torch.randint(4, (64,))
    inputs = (centres[labels] + torch.randn(64, 16)).to(torch.bfloat16)
    loss = nn.functional.cross_entropy(model(inputs).float(), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
