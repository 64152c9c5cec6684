"""Three runs of the table of symptoms, in every test run: two mistakes are named, the healthy program is silent.

All of it is in tests/scenarios/test_triage_faults.py and test_triage_healthy.py, run by `make scenarios`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bisect_train.core.probe import ProbeResult
from bisect_train.verdict.triage import SYMPTOMS
from tests.scenarios.triage.faults import FAULTS
from tests.scenarios.triage.running import Fault, check_fault, run_faulty, run_healthy, triage_fault, triage_of

PROGRAM = "mlp"
QUICK = [fault for fault in FAULTS if fault.program == PROGRAM and fault.symptom in ("nan_loss", "frozen_parameters")]
NOT_PLANTED = frozenset({"memory_full", "no_resources"})
"""They need a GPU, or a probe that asks for more than the machine has."""


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> ProbeResult:
    return run_healthy(tmp_path_factory.mktemp("healthy"), PROGRAM)


def test_every_symptom_is_planted() -> None:
    assert {fault.symptom for fault in FAULTS} == SYMPTOMS.keys() - NOT_PLANTED


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_fault_fits_its_program(fault: Fault) -> None:
    compile(fault.source, fault.program, "exec")
    assert fault.edits


def test_triage_of_the_healthy_program_says_nothing(healthy: ProbeResult) -> None:
    assert healthy.fingerprint.num_steps == 120
    assert not triage_of(healthy, PROGRAM).findings


@pytest.mark.parametrize("fault", QUICK, ids=[fault.symptom for fault in QUICK])
def test_planted_fault_is_named(tmp_path: Path, healthy: ProbeResult, fault: Fault) -> None:
    check_fault(fault, triage_fault(fault, run_faulty(tmp_path, fault), healthy))
