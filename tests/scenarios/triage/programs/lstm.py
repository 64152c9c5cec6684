"""An LSTM repeats a sequence that it has seen; its gradient is clipped."""

import torch
from torch import nn

torch.manual_seed(7)
embed, lstm, head = nn.Embedding(6, 16), nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 6)
model = nn.ModuleList([embed, lstm, head])
optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3)

for step in range(60):
    symbols = torch.randint(1, 6, (32, 4))
    inputs = torch.cat([symbols, torch.zeros(32, 4, dtype=torch.long)], dim=1)
    states, _ = lstm(embed(inputs))
    loss = nn.functional.cross_entropy(head(states[:, 4:]).flatten(0, 1), symbols.flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
