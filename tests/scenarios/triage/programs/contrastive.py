"""Two noisy views of a point are to be told from the views of others."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(17)
encoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
scale = nn.Parameter(torch.tensor(2.0))
optimizer = torch.optim.AdamW([*encoder.parameters(), scale], lr=2e-3)

for step in range(60):
    points = torch.randn(64, 16)
    one, other = (F.normalize(encoder(points + 0.3 * torch.randn(64, 16)), dim=1) for _ in range(2))
    scores = scale.exp() * one @ other.T
    labels = torch.arange(64)
    loss = 0.5 * (F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
