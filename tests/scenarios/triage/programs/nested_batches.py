"""An iterable data set, batches by a collate function, a nested batch, and an evaluation after each epoch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(30)
        for _ in range(320):
            point = torch.randn(4, generator=generator)
            yield {"point": point, "label": int(point.sum() > 0)}


def collate(rows):
    points = torch.stack([row["point"] for row in rows])
    return {"inputs": {"points": points}, "labels": torch.tensor([row["label"] for row in rows])}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, inputs):
        return self.layers(inputs["points"])


torch.manual_seed(30)
model = Model()
optimizer = torch.optim.NAdam(model.parameters(), lr=5e-3)
for epoch in range(3):
    for batch in DataLoader(Stream(), batch_size=16, collate_fn=collate):
        loss = nn.functional.cross_entropy(model(batch["inputs"]), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        points = torch.randn(100, 4)
        val = nn.functional.cross_entropy(model({"points": points}), (points.sum(dim=1) > 0).long())
    model.train()
    print(f"epoch {epoch} loss {loss.item():.4f} val loss {val.item():.4f}")
