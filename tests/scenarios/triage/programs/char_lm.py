"""A two-layer transformer with dropout and tied weights on characters; warm-up from 0, cosine decay, clipping."""

import math
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(1337)
text = "\n".join(topics[name] for name in sorted(topics))[:60000]
codes = torch.tensor([min(ord(symbol), 127) for symbol in text])
WIDTH, WINDOW, BATCH = 32, 32, 8
WARMUP, STEPS, PEAK = 8, 100, 3e-3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        batch, time, _ = x.shape
        q, k, v = (part.view(batch, time, 2, -1).transpose(1, 2) for part in self.mix(self.norm1(x)).chunk(3, dim=-1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, time, WIDTH)
        x = x + self.out(seen)
        return x + self.wide(self.norm2(x))


class CharModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.symbols, self.places = nn.Embedding(128, WIDTH), nn.Embedding(WINDOW, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 128, bias=False)
        self.head.weight = self.symbols.weight
        nn.init.normal_(self.symbols.weight, std=0.02)

    def forward(self, inputs):
        x = self.symbols(inputs) + self.places(torch.arange(inputs.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def rate_at(step):
    if step < WARMUP:
        return PEAK * step / WARMUP
    done = (step - WARMUP) / (STEPS - WARMUP)
    return PEAK * (0.1 + 0.9 * 0.5 * (1.0 + math.cos(math.pi * done)))


model = CharModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, betas=(0.9, 0.95), weight_decay=0.1)
for step in range(STEPS):
    for group in optimizer.param_groups:
        group["lr"] = rate_at(step)
    starts = torch.randint(len(codes) - WINDOW - 1, (BATCH, 1))
    window = codes[starts + torch.arange(WINDOW + 1)]
    scores = model(window[:, :-1])
    loss = F.cross_entropy(scores.flatten(0, 1), window[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
