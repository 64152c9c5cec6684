"""REINFORCE on a bandit with context: the loss is a surrogate that may be negative and need not fall."""

import torch
from torch import nn

torch.manual_seed(19)
policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
mean_reward = 0.0

for step in range(80):
    states = torch.randn(64, 4)
    choices = torch.distributions.Categorical(logits=policy(states))
    actions = choices.sample()
    rewards = (actions == states.argmax(dim=1)).float()
    loss = -(choices.log_prob(actions) * (rewards - mean_reward)).mean()
    mean_reward = 0.9 * mean_reward + 0.1 * rewards.mean().item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} reward {rewards.mean().item():.3f}")
