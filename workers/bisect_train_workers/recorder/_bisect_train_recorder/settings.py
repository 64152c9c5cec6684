"""The settings of one probe, as the supervisor wrote them beside the recorder.

A file and not the environment, because some launchers forward only `PYTHON*` variables.
"""

from __future__ import annotations

import json
from typing import Any, Dict, FrozenSet, Optional

SEED_STRIDE = 1_000_003
SEED_MODULUS = 2**32
MOVED_EVERY = 5  # checksums


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
        self.has_triage: bool = bool(values.get("triage"))
        self.is_anomaly_asked: bool = bool(values.get("anomaly"))
        self.is_profile_asked: bool = bool(values.get("profile"))
        self.tells_reads: bool = bool(values.get("tell_reads"))
        self.is_deterministic: bool = bool(values.get("deterministic"))
        self.stubs: FrozenSet[str] = frozenset(values.get("stubs") or ())
        self.shims: FrozenSet[str] = frozenset(values.get("shims") or ())
        self.step_function: str = values.get("step_function") or ""
        self.can_die_with_parent: bool = bool(values.get("die_with_parent", True))
        # A run that will be resumed: evaluation and saving after the last step still belong to it,
        # and it may have to wait for its end (SIGKILL) where the next step begins.
        self.is_saving: bool = bool(values.get("after_save"))
        self.is_held: bool = bool(values.get("hold"))

    @property
    def seed_shift(self) -> int:
        """What is added to every seed that the program sets; 0 means that nothing is patched."""
        return self.seed_idx * SEED_STRIDE % SEED_MODULUS

    def initial_seed(self, rank: int) -> int:
        """Return the seed, 0..2**32-1, of generators that the program does not seed itself."""
        return (self.base_seed + self.seed_idx * SEED_STRIDE + rank) % SEED_MODULUS

    def has_moved(self, step_idx: int) -> bool:
        """Tell whether the share of weights that moved is taken at a step with checksums; at each one with triage.

        Else at the first and the last and at few between: it takes a third of a checksum's time.
        """
        if self.has_triage or self.is_every_step or step_idx % (MOVED_EVERY * max(1, self.checksum_every)) == 0:
            return True
        is_last = self.num_steps is not None and step_idx == self.num_steps - 1
        return is_last or not self.has_checksum(step_idx)  # the second: at exit

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
