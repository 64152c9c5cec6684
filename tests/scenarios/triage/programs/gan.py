"""Two networks against each other, with an optimizer each: points on a ring."""

import torch
from torch import nn

torch.manual_seed(8)
maker = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
of_maker = torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.5, 0.999))
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))
judge = nn.functional.binary_cross_entropy_with_logits

for step in range(60):
    angles = 6.2832 * torch.rand(64, 1)
    real = torch.cat([angles.cos(), angles.sin()], dim=1)
    made = maker(torch.randn(64, 4))
    loss = judge(critic(real), torch.ones(64, 1)) + judge(critic(made.detach()), torch.zeros(64, 1))
    of_critic.zero_grad()
    loss.backward()
    of_critic.step()

    fooled = judge(critic(made), torch.ones(64, 1))
    of_maker.zero_grad()
    fooled.backward()
    of_maker.step()
    if step % 10 == 0:
        print(f"step {step} critic {loss.item():.4f} maker {fooled.item():.4f}")
