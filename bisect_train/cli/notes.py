"""What a person should know of their own input, though nothing is wrong with it."""

from __future__ import annotations

from rich.console import Console


def say_note(text: str) -> None:
    """Print a warning on stderr; the command goes on."""
    Console(stderr=True, highlight=False).print(f"bisect-train: warning: {text}", markup=False, soft_wrap=True)
