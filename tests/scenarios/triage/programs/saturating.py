"""Five layers of sigmoids on inputs of unit size."""

import torch
from torch import nn

torch.manual_seed(41)
layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.Sigmoid())]
model = nn.Sequential(*layers, nn.Linear(16, 2))
for layer in model:
    if isinstance(layer, nn.Linear):
        nn.init.normal_(layer.weight, std=1.0)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
centres = torch.randn(2, 16)

for step in range(60):
    labels = torch.randint(2, (64,))
    inputs = centres[labels] + 0.5 * torch.randn(64, 16)
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
