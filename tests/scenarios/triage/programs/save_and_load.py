"""Half-way all state is saved, and a new model goes on from it."""

import torch
from torch import nn

torch.manual_seed(25)


def start():
    model = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 3))
    return model, torch.optim.AdamW(model.parameters(), lr=5e-3)


model, optimizer = start()
teacher = torch.randn(9, 3)
for step in range(60):
    if step == 30:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "half.pt")
        model, optimizer = start()
        state = torch.load("half.pt")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    inputs = torch.randn(48, 9)
    loss = nn.functional.cross_entropy(model(inputs), (inputs @ teacher).argmax(dim=1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
