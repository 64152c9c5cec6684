"""A small classifier that Hydra composes: `python train.py model.dropout=0.1`."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import nn

log = logging.getLogger(__name__)


def make_data(num_rows: int, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points in 16 dimensions, and which of four directions each is nearest to."""
    generator = torch.Generator().manual_seed(7)
    directions = torch.randn(16, 4, generator=generator)
    points = torch.randn(num_rows, 16, generator=generator)
    targets = (points @ directions).argmax(dim=1)
    return points + noise * torch.randn(points.shape, generator=generator), targets


def build_model(cfg: DictConfig) -> nn.Module:
    """Return the network."""
    width = cfg.width
    return nn.Sequential(
        nn.Linear(16, width), nn.ReLU(), nn.Dropout(cfg.dropout), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
    )


def digest(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters."""
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    """Train."""
    torch.manual_seed(cfg.seed)
    points, targets = make_data(cfg.data.num_rows, cfg.data.noise)
    model = build_model(cfg.model)
    optimizer = instantiate(cfg.optim, params=model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=cfg.steps)
    with Path(HydraConfig.get().runtime.output_dir, "history.jsonl").open("w") as history:
        for step in range(cfg.steps):
            rows = torch.randint(len(points), (cfg.data.batch_size,))
            loss = nn.functional.cross_entropy(model(points[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            history.write(json.dumps({"step": step, "loss": loss.item()}) + "\n")
            if step % cfg.log_every == 0:
                log.info("step %d loss %.4f", step, loss.item())
    log.info("parameters %s", digest(model))


if __name__ == "__main__":
    main()
