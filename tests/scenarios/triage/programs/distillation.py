"""A small network learns the answers of a larger one that is not trained."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(22)
teacher = nn.Sequential(nn.Linear(10, 128), nn.ReLU(), nn.Linear(128, 6)).eval()
student = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 6))
optimizer = torch.optim.AdamW(student.parameters(), lr=5e-3)

for step in range(80):
    inputs = torch.randn(64, 10)
    with torch.no_grad():
        wanted = F.softmax(5.0 * teacher(inputs), dim=1)
    loss = F.kl_div(F.log_softmax(student(inputs), dim=1), wanted, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
