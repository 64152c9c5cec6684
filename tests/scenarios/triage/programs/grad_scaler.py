"""Half precision with a loss scale that is too large at first: the first steps are skipped."""

import torch
from torch import nn

torch.manual_seed(10)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
mix = torch.randn(32, 1)

for step in range(40):
    inputs = torch.randn(32, 32)
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
    loss = nn.functional.mse_loss(outputs.float(), inputs @ mix)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale():.0f}")
