"""Data parallel with a DistributedSampler, two epochs, and an evaluation on rank 0 alone."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
torch.manual_seed(33)
points = torch.randn(390, 6)
labels = (points[:, 0] > points[:, 1]).long()
held_out = torch.randn(64, 6)
sampler = DistributedSampler(TensorDataset(points, labels), seed=33)
loader = DataLoader(TensorDataset(points, labels), batch_size=16, sampler=sampler)
network = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 2))
model = DistributedDataParallel(network)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
torch.manual_seed(33 + rank)  # dropout of its own on each rank

for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch, wanted in loader:
        loss = nn.functional.cross_entropy(model(batch), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        network.eval()
        with torch.no_grad():
            val = nn.functional.cross_entropy(network(held_out), (held_out[:, 0] > held_out[:, 1]).long())
        network.train()
        torch.save(network.state_dict(), "epoch.pt")
        print(f"epoch {epoch} loss {loss.item():.4f} val loss {val.item():.4f}")
    dist.barrier()

dist.destroy_process_group()
