"""The settings of one probe, as the supervisor wrote them beside the recorder.

A file and not the environment, because some launchers forward only `PYTHON*` variables.
"""

from __future__ import annotations

import json
from typing import Any, Dict, FrozenSet, Optional

SEED_STRIDE = 1_000_003
SEED_MODULUS = 2**32


class Settings:
    """What to record, when to stop and which seeds to shift; see `load_settings` for the file."""

    def __init__(self, values: Dict[str, Any]) -> None:
        """Read the known keys out of the parsed file; every key but `out` has a default."""
        self.out: str = values["out"]
        self.num_steps: Optional[int] = values.get("steps")
        self.seed_idx: int = int(values.get("seed_idx") or 0)
        self.exempt_seeds: FrozenSet[int] = frozenset(values.get("exempt_seeds") or ())
        self.checksum_every: int = int(values.get("checksum_every", 10) or 0)
        self.is_every_step: bool = bool(values.get("every_step"))
        self.root: Optional[str] = values.get("root")
        self.redirect_from: Optional[str] = values.get("redirect_from")
        self.base_seed: int = int(values.get("base_seed") or 0)
        self.is_deterministic: bool = bool(values.get("deterministic"))
        self.can_die_with_parent: bool = bool(values.get("die_with_parent", True))

    @property
    def seed_shift(self) -> int:
        """What is added to every seed that the program sets; 0 means that nothing is patched."""
        return self.seed_idx * SEED_STRIDE % SEED_MODULUS

    def initial_seed(self, rank: int) -> int:
        """Return the seed, 0..2**32-1, of generators that the program does not seed itself."""
        return (self.base_seed + self.seed_idx * SEED_STRIDE + rank) % SEED_MODULUS

    def has_checksum(self, step_idx: int) -> bool:
        """Tell whether parameters and generators are hashed at this step."""
        if self.is_every_step or step_idx == 0:
            return True
        if self.num_steps is not None and step_idx == self.num_steps - 1:
            return True
        return self.checksum_every > 0 and step_idx % self.checksum_every == 0


def load_settings(path: str) -> Settings:
    """Parse the settings file.

    Raises:
        OSError, ValueError, KeyError: unreadable, not JSON, or without the key "out".
    """
    with open(path, encoding="utf-8") as file:
        return Settings(json.load(file))
