"""Sequences grow longer and batches smaller; the loss rises with each stage, and falls within it."""

import torch
from torch import nn

torch.manual_seed(27)
embed, gru, head = nn.Embedding(4, 16), nn.GRU(16, 32, batch_first=True), nn.Linear(32, 4)
model = nn.ModuleList([embed, gru, head])
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)

for step in range(60):
    length = 4 + 4 * (step // 20)
    symbols = torch.randint(4, (128 // length, length))
    wanted = (symbols + symbols.roll(1, dims=1)) % 4
    states, _ = gru(embed(symbols))
    loss = nn.functional.cross_entropy(head(states).flatten(0, 1), wanted.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} length {length} loss {loss.item():.4f}")
