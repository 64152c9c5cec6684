"""A DataLoader with two workers, three epochs."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(12)
    inputs = torch.randn(480, 6)
    labels = (inputs.prod(dim=1) > 0).long()
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        for batch, wanted in loader:
            loss = nn.functional.cross_entropy(model(batch), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
