"""Runs the programs of this folder under the recorder, as they are or with a fault in them, and asks triage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.probe import MetricPattern, ProbeResult
from bisect_train.verdict.divergence import Stage
from bisect_train.verdict.triage import SYMPTOMS, Asked, Category, Triage, triage
from tests.support.recorded_training import train_recorded

PROGRAMS = Path(__file__).parent / "programs"
NAMES = tuple(sorted(path.stem for path in PROGRAMS.glob("*.py")))
FILES: Mapping[str, Mapping[str, str]] = {
    "with_helper": {"helper.py": "WIDTH = 24\n", "settings.json": '{"seed": 42, "lr": 0.01}\n'},
}
"""Files beside a program."""
ELSEWHERE = "/elsewhere"
"""In a program: the user's own checkout, with the same modules."""
PATTERNS = (MetricPattern("val_loss", r"val loss ([-+0-9.e]+|nan|inf)"),)
LIMIT_S = 240.0
"""Of a run that ends by itself; the machine may be busy."""

Edit = tuple[str, str]
"""A passage that occurs once in the program, and what stands there instead."""


@dataclass(frozen=True)
class Fault:
    """One mistake in one program.

    Attributes:
        symptom: what triage must say.
        planted: the mistake, in words.
        program: name of the program, healthy as it is.
        edits: of the program; () where the mistake lies in `settings`.
        ranks: that must be named; None is not looked at.
        step: that must be named; None is not looked at.
        also: what triage says besides: what follows from the mistake.
        perhaps: what it may say besides, as the timing of ranks has it.
        category: of the finding that leads; None for that of the symptom.
        leads: whether the symptom must be told first; else something that it leads to may be.
        stage: that is named; None for that of the symptom.
        needs_baseline: whether the healthy twin is given to triage, too.
        steps: optimizer steps that are asked for, None lets the program end.
        settings: of the faulty run, beside the usual ones.
        timeout_s: time limit of the faulty run, seconds.
    """

    symptom: str
    planted: str
    program: str
    edits: tuple[Edit, ...] = ()
    ranks: tuple[int, ...] | None = None
    step: int | None = None
    also: frozenset[str] = frozenset()
    perhaps: frozenset[str] = frozenset()
    category: Category | None = None
    leads: bool = False
    stage: Stage | None = None
    needs_baseline: bool = False
    steps: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = LIMIT_S

    @property
    def name(self) -> str:
        """Of the test."""
        return f"{self.symptom}-{self.program}"

    @cached_property
    def source(self) -> str:
        """The program with the fault. Raises ValueError where an edit does not fit."""
        text = source_of(self.program)
        for old, new in self.edits:
            if text.count(old) != 1:
                raise ValueError(f"{self.program}: expected the passage once, found it {text.count(old)} times: {old!r}")
            text = text.replace(old, new)
        return text


def source_of(program: str) -> str:
    """Return the text of a program."""
    return (PROGRAMS / f"{program}.py").read_text(encoding="utf-8")


def ranks_of(program: str) -> int:
    """Return how many processes a program is made for."""
    return 2 if 'os.environ["RANK"]' in source_of(program) else 1


def run_healthy(folder: Path, program: str, *, seed_idx: int = 0, **settings: Any) -> ProbeResult:
    """Run a program as it is."""
    return _run(folder, program, source_of(program), seed_idx=seed_idx, **settings)


def run_faulty(folder: Path, fault: Fault) -> ProbeResult:
    """Run a program with a fault in it."""
    settings = {"timeout_s": fault.timeout_s, **fault.settings}
    return _run(folder, fault.program, fault.source, steps=fault.steps, **settings)


def _run(folder: Path, program: str, text: str, **settings: Any) -> ProbeResult:
    asked = {"timeout_s": LIMIT_S, "triage": True, "patterns": PATTERNS, **settings}
    files: dict[str, str | bytes | None] = dict(FILES.get(program, {}))
    if ELSEWHERE in text:
        elsewhere = _write_elsewhere(folder / "elsewhere", FILES[program])
        text, asked["redirect_from"] = text.replace(ELSEWHERE, str(elsewhere)), str(elsewhere)
    return train_recorded(folder, text, ranks=ranks_of(program), files=files, **asked)


def _write_elsewhere(folder: Path, files: Mapping[str, str]) -> Path:
    """Write what stands for the user's own checkout; return its folder."""
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def triage_of(
    run: ProbeResult,
    program: str,
    *,
    baseline: ProbeResult | None = None,
    replicates: Iterable[Fingerprint] = (),
    steps: int | None = None,
    timeout_s: float = LIMIT_S,
    is_same_seed: bool = True,
) -> Triage:
    """Return what triage says of a run of a program."""
    asked = Asked(steps=steps, ranks=ranks_of(program), timeout_s=timeout_s, is_same_seed=is_same_seed)
    return triage(run, baseline=baseline, replicates=tuple(replicates), asked=asked)


def triage_fault(fault: Fault, run: ProbeResult, healthy: ProbeResult) -> Triage:
    """Return what triage says of the run with the fault."""
    baseline = healthy if fault.needs_baseline else None
    return triage_of(run, fault.program, baseline=baseline, steps=fault.steps, timeout_s=fault.timeout_s)


def check_fault(fault: Fault, said: Triage) -> None:
    """Raise AssertionError unless triage names category, symptom and stage of the fault, and only what follows from it."""
    named = {finding.symptom: finding for finding in said.findings}
    assert fault.symptom in named, f"{fault.planted}: triage says {list(named) or 'nothing'}"
    found = named[fault.symptom]
    assert fault.ranks in (None, found.ranks), found
    assert fault.step in (None, found.step), found
    known = SYMPTOMS[fault.symptom]
    assert found.stage is (fault.stage or known.stage), found
    assert said.category is (fault.category or known.category), f"{fault.planted}: {said.findings[0]} leads"
    assert not fault.leads or said.findings[0] is found, f"{fault.planted}: {said.findings[0]} leads"
    besides = named.keys() - {fault.symptom}
    rest = besides - fault.also - fault.perhaps
    assert not rest, f"{fault.planted}: triage says {sorted(rest)} besides: {[named[name].summary for name in rest]}"
    assert fault.also <= besides, f"{fault.planted}: triage does not say {sorted(fault.also - besides)}"
