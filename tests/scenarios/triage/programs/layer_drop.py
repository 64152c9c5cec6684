"""Residual layers that are left out at random, each half of the time."""

import torch
from torch import nn

torch.manual_seed(43)


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(6)])
        self.head = nn.Linear(8, 1)

    def forward(self, inputs):
        for layer in self.layers:
            if not self.training or torch.rand(1).item() > 0.5:
                inputs = inputs + torch.tanh(layer(inputs))
        return self.head(inputs)


model = Dropping()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

for step in range(40):
    inputs = torch.randn(32, 8)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
