"""Golden values: what a good version showed when it was saved as a baseline, so that it need not be run again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GoldenRun:
    """One run of a baseline.

    Attributes:
        seed_idx: of the run.
        value: the primary metric, in its unit.
        digest: its bits as `verdict.outcome.digest_fingerprint` gives them, "" where nothing was recorded.
    """

    seed_idx: int
    value: float
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Golden:
    """The runs of a baseline on one platform, and all that they hold for: elsewhere they say nothing.

    Attributes:
        name: of the baseline.
        variant: id of the variant that ran.
        rung: name of the rung.
        measure: digest of what else decides what a run records (`RunSettings.measure_digest`).
        hardware_class, interpreter, recorder: as in a probe's identity.
        repeats: whether the same seed gave the same bits when it was saved.
        runs: one a seed index.
        point: of the good end in the question, as text; "" in a file.
    """

    name: str
    variant: str
    rung: str
    measure: str
    hardware_class: str
    interpreter: str
    recorder: str
    repeats: bool
    runs: tuple[GoldenRun, ...]
    point: str = ""

    @staticmethod
    def of_json(data: dict[str, Any]) -> Golden:
        """Return what `asdict` wrote."""
        return Golden(**{**data, "runs": tuple(GoldenRun(**run) for run in data["runs"])})
