"""What a person should know of their own input, though nothing is wrong with it."""

from __future__ import annotations

from bisect_train.cli.terminal import SafeConsole


def say_note(text: str) -> None:
    """Print a warning on stderr; the command goes on."""
    SafeConsole(stderr=True, highlight=False).print(f"bisect-train: warning: {text}", markup=False, soft_wrap=True)
