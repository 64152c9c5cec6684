"""A small classifier under LightningCLI: `python train.py --model.lr=0.02 --trainer.max_steps=40`."""

from __future__ import annotations

import hashlib

import lightning as L
import torch
from lightning.pytorch.cli import LightningCLI
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class MadeUpData(L.LightningDataModule):
    """Points in 16 dimensions, and which of four directions each is nearest to."""

    def __init__(self, num_rows: int = 2048, batch_size: int = 32) -> None:
        super().__init__()
        self.batch_size = batch_size
        generator = torch.Generator().manual_seed(7)
        directions = torch.randn(16, 4, generator=generator)
        points = torch.randn(num_rows, 16, generator=generator)
        self.rows = TensorDataset(points, (points @ directions).argmax(dim=1))

    def train_dataloader(self) -> DataLoader:
        """Return batches of the first three quarters."""
        return DataLoader(torch.utils.data.Subset(self.rows, range(1536)), self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        """Return batches of the rest."""
        return DataLoader(torch.utils.data.Subset(self.rows, range(1536, len(self.rows))), self.batch_size)


class Classifier(L.LightningModule):
    """Three layers, and a learning rate that warms up."""

    def __init__(self, width: int = 32, dropout: float = 0.1, lr: float = 0.02, warmup: int = 10) -> None:
        super().__init__()
        self.save_hyperparameters()
        layers = (nn.Linear(16, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, width), nn.ReLU())
        self.layers = nn.Sequential(*layers, nn.Linear(width, 4))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Return the loss of a batch."""
        points, targets = batch
        loss = nn.functional.cross_entropy(self.layers(points), targets)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        """Log the loss of a batch that is not trained on."""
        points, targets = batch
        self.log("val_loss", nn.functional.cross_entropy(self.layers(points), targets), prog_bar=True)

    def configure_optimizers(self) -> object:
        """Return optimizer and schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, betas=(0.9, 0.99))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / self.hparams.warmup))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def digest(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters."""
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()


def main() -> None:
    """Train."""
    defaults = {"max_steps": 60, "log_every_n_steps": 1, "accelerator": "cpu", "devices": 1, "logger": True}
    cli = LightningCLI(Classifier, MadeUpData, run=False, seed_everything_default=1337, trainer_defaults=defaults)
    cli.trainer.fit(cli.model, cli.datamodule)
    print("parameters", digest(cli.model), flush=True)


if __name__ == "__main__":
    main()
