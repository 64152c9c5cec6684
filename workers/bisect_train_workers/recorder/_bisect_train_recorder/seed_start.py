"""Seeds the global generators that the program may never seed itself.

Runs before the program can draw from them; what the program seeds later still wins.
"""

from __future__ import annotations

from typing import Any


def seed_random(session: Any, random: Any) -> None:
    """Seed python's global generator."""
    random.seed(session.settings.initial_seed(session.rank))


def seed_numpy(session: Any, numpy_random: Any) -> None:
    """Seed numpy's global generator."""
    numpy_random.seed(session.settings.initial_seed(session.rank))


def seed_torch(session: Any, torch: Any) -> None:
    """Seed torch's global generators, those of accelerators too (torch queues them until first use)."""
    torch.manual_seed(session.settings.initial_seed(session.rank))
