"""Four micro-batches an update."""

import torch
from torch import nn

torch.manual_seed(9)
model = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
teacher = torch.randn(10, 5)

for step in range(40):
    optimizer.zero_grad(set_to_none=True)
    for _ in range(4):
        inputs = torch.randn(16, 10)
        loss = nn.functional.cross_entropy(model(inputs), (inputs @ teacher).argmax(dim=1)) / 4
        loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {4 * loss.item():.4f}")
