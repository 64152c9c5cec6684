"""One cycle of rate and momentum."""

import torch
from torch import nn

torch.manual_seed(23)
model = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=80)
mix = torch.randn(7, 1)

for step in range(80):
    inputs = torch.randn(32, 7)
    loss = nn.functional.smooth_l1_loss(model(inputs), (inputs @ mix).relu())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
