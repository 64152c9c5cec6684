"""A mixture of eight experts, one a sample: now and then an expert gets no sample, and no gradient."""

import torch
from torch import nn

torch.manual_seed(6)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(8, 8)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in range(8))

    def forward(self, inputs):
        shares = self.router(inputs).softmax(dim=1)
        best = shares.argmax(dim=1)
        out = torch.zeros(len(inputs), 1)
        for idx, expert in enumerate(self.experts):
            mine = (best == idx).nonzero().flatten()
            if len(mine):
                out = out.index_add(0, mine, shares[mine, idx : idx + 1] * expert(inputs[mine]))
        return out


model = Experts()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(80):
    inputs = torch.randn(24, 8)
    targets = inputs[:, :1].abs() - inputs[:, 1:2]
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
