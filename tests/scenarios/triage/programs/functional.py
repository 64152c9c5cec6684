"""No module and no backward: parameters in a list, gradients by torch.autograd.grad, an optimizer of torch."""

import torch

torch.manual_seed(26)
weights = [0.3 * torch.randn(6, 20), torch.zeros(20), 0.2 * torch.randn(20, 1), torch.zeros(1)]
for weight in weights:
    weight.requires_grad_(True)
optimizer = torch.optim.Adam(weights, lr=2e-2)

for step in range(100):
    inputs = torch.randn(64, 6)
    hidden = torch.tanh(inputs @ weights[0] + weights[1])
    loss = (hidden @ weights[2] + weights[3] - inputs[:, :1] * inputs[:, 1:2]).square().mean()
    for weight, grad in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.grad = grad
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
