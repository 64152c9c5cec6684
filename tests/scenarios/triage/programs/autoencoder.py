"""A variational autoencoder of points on a plane in ten dimensions; its loss is reconstruction and divergence."""

import torch
from torch import nn

torch.manual_seed(18)
plane = torch.randn(2, 10)
encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
decoder = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=3e-3)

for step in range(80):
    inputs = torch.randn(64, 2) @ plane + 0.1 * torch.randn(64, 10)
    mean, log_var = encoder(inputs).chunk(2, dim=1)
    hidden = mean + (0.5 * log_var).exp() * torch.randn_like(mean)
    apart = (decoder(hidden) - inputs).square().sum(dim=1).mean()
    prior = -0.5 * (1.0 + log_var - mean.square() - log_var.exp()).sum(dim=1).mean()
    loss = apart + prior
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
