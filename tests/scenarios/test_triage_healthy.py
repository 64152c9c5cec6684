"""No false alarm: programs of many kinds, healthy as they are, and triage says nothing of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.triage.healthy import OF_TIME, HealthyRuns
from tests.scenarios.triage.running import NAMES

MIN_PROGRAMS = 30
MIN_STEPS = 10
ONE_STEP_SEEN = frozenset({"functional"})
"""Without `backward` the recorder takes all updates for one step: triage sees little of it, so its silence says little."""


@pytest.mark.scenario
def test_healthy_programs_are_many() -> None:
    assert len(set(NAMES) - ONE_STEP_SEEN) >= MIN_PROGRAMS


@pytest.mark.scenario
@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", NAMES)
def test_triage_of_a_healthy_program_says_nothing(tmp_path: Path, program: str) -> None:
    runs = HealthyRuns.of(tmp_path / "runs", program)
    for run in (runs.first, runs.again, runs.other):
        assert run.fingerprint.ending.is_healthy, run.log_tail
        assert (run.fingerprint.num_steps >= MIN_STEPS) is (program not in ONE_STEP_SEEN)
    alarms = runs.alarms()
    if alarms and all(alarm.symptom in OF_TIME for alarm in alarms):  # a busy machine does not come back in step
        known = {(alarm.asked, alarm.symptom) for alarm in alarms}
        alarms = [
            alarm for alarm in HealthyRuns.of(tmp_path / "once more", program).alarms() if (alarm.asked, alarm.symptom) in known
        ]
    assert alarms == []
