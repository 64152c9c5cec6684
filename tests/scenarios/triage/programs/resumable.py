"""Saves everything every ten steps; `--resume` goes on from the last save as if nothing had happened."""

import sys
from pathlib import Path

import torch
from torch import nn

torch.manual_seed(40)
model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
first = 0
if "--resume" in sys.argv:
    saved = torch.load("last.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["generator"])
    first = saved["step"] + 1

for step in range(first, 40):
    inputs = torch.randn(32, 6)
    loss = nn.functional.mse_loss(model(inputs), inputs[:, :1] * inputs[:, 1:2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "generator": torch.get_rng_state()}
        torch.save({**state, "step": step}, "next.pt")
        Path("next.pt").replace("last.pt")
        print(f"step {step} loss {loss.item():.4f}")
