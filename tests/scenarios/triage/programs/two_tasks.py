"""Two tasks in turn on one body: the head of the second gets no gradient at the first step, and none at the last."""

import torch
from torch import nn

torch.manual_seed(42)


class TwoTasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.heads = nn.ModuleList([nn.Linear(16, 1), nn.Linear(16, 1)])

    def forward(self, inputs, task):
        return self.heads[task](torch.tanh(self.body(inputs)))


model = TwoTasks()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

for step in range(41):
    inputs = torch.randn(32, 8)
    wanted = inputs.sum(1, keepdim=True) if step % 2 == 0 else inputs[:, :1]
    loss = nn.functional.mse_loss(model(inputs, step % 2), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
