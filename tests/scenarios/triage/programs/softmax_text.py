"""Softmax regression: the next character from the three before it."""

from pydoc_data.topics import topics

import torch
from torch import nn

torch.manual_seed(2)
text = "\n".join(topics[name] for name in sorted(topics))[:40000]
codes = torch.tensor([min(ord(symbol), 127) for symbol in text])
table = nn.Embedding(3 * 128, 128)
nn.init.normal_(table.weight, std=0.02)
optimizer = torch.optim.SGD(table.parameters(), lr=2.0, momentum=0.9)
places = torch.arange(3) * 128

for step in range(60):
    starts = torch.randint(len(codes) - 3, (256,))
    scores = table(codes[starts[:, None] + torch.arange(3)] + places).sum(dim=1)
    loss = nn.functional.cross_entropy(scores, codes[starts + 3])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
