"""The same batch over and over, until it is learnt by heart: a usual first test of a program."""

import torch
from torch import nn

torch.manual_seed(28)
inputs, labels = torch.randn(16, 12), torch.randint(4, (16,))
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

for step in range(80):
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.6f}")
