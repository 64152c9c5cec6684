"""A second copy of the weights follows as a running mean, and is evaluated."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(16)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
smooth = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
mix = torch.randn(8, 1)

for step in range(60):
    inputs = torch.randn(32, 8)
    loss = nn.functional.l1_loss(model(inputs), torch.tanh(inputs @ mix))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    smooth.update_parameters(model)
    if step % 10 == 9:
        with torch.no_grad():
            inputs = torch.randn(128, 8)
            val = nn.functional.l1_loss(smooth(inputs), torch.tanh(inputs @ mix))
        print(f"step {step} loss {loss.item():.4f} val loss {val.item():.4f}")
