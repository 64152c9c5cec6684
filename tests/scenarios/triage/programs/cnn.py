"""A convolutional network with batch normalisation tells bars from crosses."""

import torch
from torch import nn

torch.manual_seed(3)


def draw(num):
    labels = torch.randint(3, (num,))
    images = 0.5 * torch.randn(num, 1, 12, 12)
    rows = torch.randint(2, 10, (num,))
    for idx in range(num):
        if labels[idx] != 1:
            images[idx, 0, rows[idx]] += 1.0
        if labels[idx] != 0:
            images[idx, 0, :, rows[idx]] += 1.0
    return images, labels


model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 3),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)

for step in range(40):
    images, labels = draw(32)
    model.train()
    loss = nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        model.eval()
        with torch.no_grad():
            images, labels = draw(64)
            share = (model(images).argmax(dim=1) == labels).float().mean()
        print(f"step {step} loss {loss.item():.4f} accuracy {share.item():.3f}")
