"""Names under which programs write what the recorder sees."""

from __future__ import annotations

SAME_AS = {
    "loss": ("loss", "train_loss", "training_loss", "train_train_loss"),
    "grad_norm": ("grad_norm", "train_grad_norm", "gradient_norm"),
    "lr": ("lr", "train_lr", "learning_rate", "train_learning_rate"),
}
"""The recorder's name -> names in small letters, words parted by `_`, the usual one first."""


def recorded_name(name: str) -> str:
    """Return what the recorder calls a metric that a program writes (`train/loss`), "" for anything else."""
    plain = "".join(char if char.isalnum() else "_" for char in name.lower())
    return next((ours for ours, names in SAME_AS.items() if plain in names), "")
