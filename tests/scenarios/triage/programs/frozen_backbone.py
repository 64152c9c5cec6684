"""Only the head of a network is trained; the rest is frozen on purpose."""

import torch
from torch import nn

torch.manual_seed(13)
backbone = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
for parameter in backbone.parameters():
    parameter.requires_grad_(False)
model = nn.Sequential(backbone, nn.Linear(48, 3))
optimizer = torch.optim.SGD([item for item in model.parameters() if item.requires_grad], lr=0.5, momentum=0.9)
centres = torch.randn(3, 12)

for step in range(50):
    labels = torch.randint(3, (32,))
    inputs = centres[labels] + 0.7 * torch.randn(32, 12)
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
