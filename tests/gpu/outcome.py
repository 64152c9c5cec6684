"""What one part of the show is given, and what it says. Standard library only."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Setting:
    """Where and how parts run.

    Attributes:
        device: cuda or cpu.
        folder: scratch, that of this part.
        rounds: runs of each kind where times are compared.
        deadline: `time.monotonic()` after which no further run is begun.
    """

    device: str
    folder: Path
    rounds: int = 3
    deadline: float = float("inf")

    @property
    def has_time(self) -> bool:
        """Whether another run may begin."""
        return time.monotonic() < self.deadline


@dataclass(frozen=True)
class Outcome:
    """What a part says.

    Attributes:
        is_fine: whether it shows what it should; None where it was skipped.
        said: one line for a person, with figures and their units, or why it was skipped.
        figures: everything that was measured, JSON-able.
    """

    is_fine: bool | None
    said: str
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """PASS, FAIL or skipped."""
        return "skipped" if self.is_fine is None else "PASS" if self.is_fine else "FAIL"


def skipped(reason: str) -> Outcome:
    """Return the outcome of a part that cannot run here."""
    return Outcome(None, reason)


def has_cuda() -> bool:
    """Return whether torch sees a CUDA device."""
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


NO_CUDA = "no CUDA: torch sees no device"
