"""A program of several files: a module, settings, and a device."""

import json
from pathlib import Path

import torch
from helper import WIDTH
from torch import nn

settings = json.loads(Path("settings.json").read_text())
torch.manual_seed(settings["seed"])
device = torch.device("cpu")
model = nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=settings["lr"])

for step in range(40):
    inputs = torch.randn(32, 6, device=device)
    loss = nn.functional.mse_loss(model(inputs), inputs.square().mean(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
