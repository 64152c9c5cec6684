"""Healthy programs: triage must say nothing, alone and against other healthy runs of the same program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.probe import ProbeResult
from tests.scenarios.triage.running import run_healthy, triage_of

OF_ONE_SEED = frozenset({"data_changed", "lr_differs", "too_good"})
"""What another seed shows against one baseline without any fault: other batches, rates that follow the loss, and a small loss
that is a fraction of the other's. Other seeds are replicates; a baseline has the same seed."""
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
            ("alone", self.first, None, ()),
            ("another seed alone", self.other, None, ()),
            ("against the same seed again", self.again, self.first, (self.other.fingerprint,)),
            ("against another seed", self.other, self.first, ()),
        )
        found = []
        for asked, run, baseline, replicates in rows:
            said = triage_of(run, self.program, baseline=baseline, replicates=replicates)
            left_out = OF_ONE_SEED if run is self.other and baseline is not None else frozenset()
            findings = [item for item in said.findings if item.symptom not in left_out]
            found += [Alarm(self.program, asked, item.symptom, item.summary) for item in findings]
        return found
