"""Torch's own schedulers: a linear warm-up, then half a wave; two parameter groups."""

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

torch.manual_seed(15)
model = nn.Sequential(nn.Linear(6, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 2))
decayed = [item for item in model.parameters() if item.dim() > 1]
others = [item for item in model.parameters() if item.dim() <= 1]
optimizer = torch.optim.SGD([{"params": decayed, "weight_decay": 1e-3}, {"params": others, "lr": 0.05}], lr=0.1, momentum=0.9)
warmup = LinearLR(optimizer, start_factor=0.01, total_iters=10)
schedule = SequentialLR(optimizer, [warmup, CosineAnnealingLR(optimizer, T_max=50)], milestones=[10])

for step in range(60):
    inputs = torch.randn(48, 6)
    labels = (inputs[:, 0] * inputs[:, 1] > 0).long()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f} lr {schedule.get_last_lr()[0]:.4f}")
