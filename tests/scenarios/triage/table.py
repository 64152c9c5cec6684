"""Prints the table of symptoms as Markdown: the mistake that was planted, and what triage said.

python -m tests.scenarios.triage.table               plants every fault (about ten minutes on two cores)
python -m tests.scenarios.triage.table NAME ...      only those of these symptoms
python -m tests.scenarios.triage.table --healthy     counts the alarms on healthy runs in place of that

What tests would not accept is told on standard error.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bisect_train.core.probe import ProbeResult
from bisect_train.verdict.triage import Triage
from tests.scenarios.triage.faults import FAULTS
from tests.scenarios.triage.healthy import HealthyRuns
from tests.scenarios.triage.running import NAMES, Fault, check_fault, run_faulty, run_healthy, triage_fault

HEAD = "| symptom | planted | program | needs a baseline | stage | said |\n| --- | --- | --- | --- | --- | --- |"
_FOLDER = re.compile(r"/\S*/")


def rows(faults: Sequence[Fault], folder: Path) -> Iterator[str]:
    """Yield a row of the table for each fault, as its runs end."""
    twins: dict[str, ProbeResult] = {}
    for idx, fault in enumerate(faults):
        if fault.needs_baseline and fault.program not in twins:
            twins[fault.program] = run_healthy(folder / f"twin{idx}", fault.program)
        run = run_faulty(folder / f"fault{idx}", fault)
        said = triage_fault(fault, run, twins.get(fault.program, run))
        try:
            check_fault(fault, said)
        except AssertionError as error:
            print(f"not as asserted: {error}", file=sys.stderr, flush=True)
        yield row_of(fault, said)


def row_of(fault: Fault, said: Triage) -> str:
    """Return the row of one fault."""
    found = next((item for item in said.findings if item.symptom == fault.symptom), None)
    stage = found.stage.value if found else ""
    summary = found.summary if found else f"NOT NAMED: {[item.symptom for item in said.findings]}"
    besides = [item.symptom for item in said.findings if item.symptom != fault.symptom]
    more = f" (besides: {', '.join(besides)})" if besides else ""
    cells = (fault.symptom, fault.planted, fault.program, "yes" if fault.needs_baseline else "no", stage, summary + more)
    return "| " + " | ".join(_FOLDER.sub("", cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def count_alarms(folder: Path) -> str:
    """Run all healthy programs; return the number of alarms, and each of them."""
    alarms = []
    for name in NAMES:
        alarms += HealthyRuns.of(folder / name, name).alarms()
    told = [f"- {alarm.program}, {alarm.asked}: {alarm.symptom}: {alarm.summary}" for alarm in alarms]
    return "\n".join(
        [f"{len(alarms)} alarms on {4 * len(NAMES)} looks at {3 * len(NAMES)} runs of {len(NAMES)} programs", *told]
    )


def main(arguments: Sequence[str]) -> None:
    """Print what was asked for."""
    with tempfile.TemporaryDirectory(prefix="bt-") as name:
        if "--healthy" in arguments:
            print(count_alarms(Path(name)))
            return
        print(HEAD)
        for row in rows([fault for fault in FAULTS if not arguments or fault.symptom in arguments], Path(name)):
            print(row, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
