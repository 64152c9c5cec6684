"""Every symptom, planted in a program that trains for real: triage names it, and says nothing of the healthy twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_train.core.probe import ProbeResult
from tests.scenarios.triage.faults import FAULTS
from tests.scenarios.triage.running import Fault, check_fault, run_faulty, run_healthy, triage_fault, triage_of

Twins = dict[str, ProbeResult]


@pytest.fixture(scope="module")
def twins() -> Twins:
    """Healthy runs by program, made when they are first asked for."""
    return {}


def _twin(twins: Twins, folder: Path, program: str) -> ProbeResult:
    if program not in twins:
        twins[program] = run_healthy(folder, program)
    return twins[program]


@pytest.mark.scenario
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_planted_fault_is_named_and_its_twin_is_silent(tmp_path: Path, twins: Twins, fault: Fault) -> None:
    healthy = _twin(twins, tmp_path / "twin", fault.program)
    assert not triage_of(healthy, fault.program, timeout_s=fault.timeout_s).findings
    check_fault(fault, triage_fault(fault, run_faulty(tmp_path / "fault", fault), healthy))
