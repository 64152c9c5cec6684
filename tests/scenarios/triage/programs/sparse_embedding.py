"""Matrix factorisation with sparse gradients: most rows get none in a step."""

import torch
from torch import nn

torch.manual_seed(20)
users, items = nn.Embedding(500, 8, sparse=True), nn.Embedding(300, 8, sparse=True)
for table in (users, items):
    nn.init.normal_(table.weight, std=0.3)
tastes, kinds = torch.randn(500, 2), torch.randn(300, 2)
optimizer = torch.optim.SparseAdam([*users.parameters(), *items.parameters()], lr=0.02)

for step in range(100):
    who, what = torch.randint(500, (128,)), torch.randint(300, (128,))
    wanted = (tastes[who] * kinds[what]).sum(dim=1)
    loss = ((users(who) * items(what)).sum(dim=1) - wanted).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
