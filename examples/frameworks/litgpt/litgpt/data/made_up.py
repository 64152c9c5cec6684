"""A language that is made up: each of 64 words has three that may follow it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import torch
from litgpt.data.base import DataModule
from litgpt.tokenizer import Tokenizer
from torch.utils.data import DataLoader


@dataclass
class MadeUp(DataModule):
    """Texts that are made when they are asked for."""

    num_texts: int = 512
    """How many there are; a quarter of them is held back."""
    seed: int = 42
    """Of their order."""
    batch_size: int = field(default=1, init=False)
    max_seq_length: int = field(default=64, init=False)

    def __post_init__(self) -> None:
        super().__init__()

    def connect(self, tokenizer: Tokenizer | None = None, batch_size: int = 1, max_seq_length: int | None = None) -> None:
        """Take what the program knows."""
        self.batch_size, self.max_seq_length = batch_size, max_seq_length or 64

    def texts(self) -> torch.Tensor:
        """Return all texts, one more word in each than the model reads."""
        generator = torch.Generator().manual_seed(7)
        followers = torch.randint(64, (64, 3), generator=generator)
        words = [torch.randint(64, (self.num_texts,), generator=generator)]
        for _ in range(self.max_seq_length):
            words.append(followers[words[-1], torch.randint(3, (self.num_texts,), generator=generator)])
        return torch.stack(words, dim=1)

    def train_dataloader(self) -> DataLoader:
        """Return shuffled batches."""
        order = torch.Generator().manual_seed(self.seed)
        return DataLoader(self.texts()[self.num_texts // 4 :], self.batch_size, shuffle=True, generator=order, drop_last=True)

    def val_dataloader(self) -> DataLoader:
        """Return batches of what is held back."""
        return DataLoader(self.texts()[: self.num_texts // 4], self.batch_size)


def digest(model: torch.nn.Module) -> str:
    """Return the SHA-256 of all parameters."""
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()
