"""Healthy programs: triage must say nothing, alone and against other healthy runs of the same program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.probe import ProbeResult
from tests.scenarios.triage.running import run_healthy, triage_of

OF_TIME = frozenset({"slower", "data_loading"})
"""What other work on the machine may show; single runs are measured once more."""


@dataclass(frozen=True)
class Alarm:
    """One finding on a healthy run."""

    program: str
    asked: str
    symptom: str
    summary: str


@dataclass(frozen=True)
class HealthyRuns:
    """Three runs of one program: one seed twice, and another seed."""

    program: str
    first: ProbeResult
    again: ProbeResult
    other: ProbeResult

    @staticmethod
    def of(folder: Path, program: str) -> HealthyRuns:
        """Run the program three times."""
        first = run_healthy(folder / "first", program)
        again = run_healthy(folder / "again", program)
        return HealthyRuns(program, first, again, run_healthy(folder / "other", program, seed_idx=1))

    def alarms(self) -> list[Alarm]:
        """Return all that triage says of them."""
        rows = (
            ("alone", self.first, None, (), True),
            ("another seed alone", self.other, None, (), True),
            ("against the same seed again", self.again, self.first, (self.other.fingerprint,), True),
            ("against another seed", self.other, self.first, (), False),
        )
        found = []
        for asked, run, baseline, replicates, is_same_seed in rows:
            said = triage_of(run, self.program, baseline=baseline, replicates=replicates, is_same_seed=is_same_seed)
            found += [Alarm(self.program, asked, item.symptom, item.summary) for item in said.findings]
        return found
