"""Stored results as housekeeping sees them: whose they are, whether this machine may take them over, whether they are whole.

A probe's key is the digest of all that its numbers depend on. It is computed again here from what is stored beside the
result, so a result under a wrong key, or of another recorder, is told. Runs that looked closer (`--triage`, a second look)
had settings that are not stored, and are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bisect_train.coordinator.trust import is_reusable
from bisect_train.core.changes import Variant
from bisect_train.core.errors import MachineError
from bisect_train.core.probe import RECORDER_VERSION, MachineFacts, ProbeSpec, Rung, RunSettings, probe_key
from bisect_train.core.question import Question
from bisect_train.store.contract import StoredBisection
from bisect_train.store.upkeep import StoredResult
from bisect_train_workers.node_facts import find_node_facts

_MAX_SCOPES = 16


@dataclass(frozen=True, slots=True)
class Origin:
    """How a key came about: version of the recorder, and for whom it is ("" for every bisection)."""

    recorder: str
    scope: str


@dataclass(frozen=True, slots=True)
class ResultGroup:
    """Results of one hardware class and interpreter.

    Attributes:
        num, num_bytes: how many, and their size in the database.
        num_reusable: that a bisection on this machine would take over today.
    """

    hardware_class: str
    interpreter: str
    num: int = 0
    num_bytes: int = 0
    num_reusable: int = 0


class Machine:
    """What this machine is, as probes with some settings see it; asked once for each interpreter."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, float, str], MachineFacts | None] = {}

    def facts(self, settings: RunSettings) -> MachineFacts | None:
        """Return the facts, None where the interpreter cannot be used."""
        key = (settings.python, settings.gpus, settings.redirect_from)
        if key not in self._known:
            found = find_node_facts(settings) if os.access(settings.python, os.X_OK) else None
            is_usable = found is not None and not found.error
            self._known[key] = MachineFacts(found.hardware_class, found.interpreter, 1) if found and is_usable else None
        return self._known[key]


def question_of(stored: StoredBisection) -> Question | None:
    """Return a bisection's question, None where this version cannot read it."""
    try:
        return Question.of_json(stored.question)
    except MachineError:
        return None


def explain_key(result: StoredResult, question: Question) -> Origin | None:
    """Return how a result's key came about, None where nothing that is stored gives it."""
    own = result.bisection_id
    scopes = ["", own, *(f"{own}/{idx}" for idx in range(_MAX_SCOPES)), *(f"{own}/again-{n}" for n in range(1, _MAX_SCOPES))]
    whole = keys_of(result, question, Origin(RECORDER_VERSION, "")) | keys_of(result, question, Origin(RECORDER_VERSION, own))
    scopes += [f"{own}/early-{key}" for key in sorted(whole)]  # of a run that was stopped early
    for recorder in range(int(RECORDER_VERSION), 0, -1):
        for scope in scopes:
            origin = Origin(str(recorder), scope)
            if result.key in keys_of(result, question, origin):
                return origin
    return None


def keys_of(result: StoredResult, question: Question, origin: Origin) -> frozenset[str]:
    """Return the keys that a result may have, with packages of its own or without; none where its spec cannot be read."""
    spec, settings = result.spec, question.settings
    try:
        facts = MachineFacts(str(spec["hardware_class"]), str(spec["interpreter"]), 1)
        rung, seed_idx, repeat = rung_of(spec, question), int(spec["seed_idx"]), int(spec["repeat"])
        variants = [_stand_in(str(spec["variant"]), has_packages=has) for has in (False, True)]
    except (LookupError, TypeError, ValueError):
        return frozenset()
    runs = [ProbeSpec(variant, rung, seed_idx, repeat) for variant in variants]
    return frozenset(
        probe_key(run, settings=settings, facts=facts, scope=origin.scope, recorder=origin.recorder) for run in runs
    )


def rung_of(spec: Mapping[str, Any], question: Question) -> Rung:
    """Return the rung that a result's spec names. Raises ValueError."""
    if spec.get("rung") in (None, question.rung.name):
        return question.rung
    steps, _, ranks = str(spec["rung"]).partition(" x ")
    return Rung(None if steps == "end" else int(steps.split()[0]), int(ranks.split()[0]))


def _stand_in(variant_id: str, *, has_packages: bool) -> Variant:
    """Return a variant of which only the identity counts."""
    variant = Variant("", "", (), packages=("a package",) if has_packages else ())
    object.__setattr__(variant, "id", variant_id)
    return variant


def count_results(
    results: Iterable[StoredResult], every: Iterable[StoredBisection], machine: Machine
) -> tuple[ResultGroup, ...]:
    """Return the results by hardware class and interpreter, the most first."""
    questions = {stored.id: question_of(stored) for stored in every}
    groups: dict[tuple[str, str], ResultGroup] = {}
    for result in results:
        key = (str(result.spec.get("hardware_class", "unknown")), str(result.spec.get("interpreter", "unknown")))
        old = groups.get(key, ResultGroup(*key))
        reusable = old.num_reusable + can_reuse(result, questions.get(result.bisection_id), machine)
        groups[key] = ResultGroup(*key, old.num + 1, old.num_bytes + result.num_bytes, reusable)
    return tuple(sorted(groups.values(), key=lambda group: (-group.num, group.hardware_class, group.interpreter)))


def can_reuse(result: StoredResult, question: Question | None, machine: Machine) -> bool:
    """Return whether a bisection like the one that ran it would take the result over, on this machine, today."""
    if question is None or not is_of(result, machine.facts(question.settings)):
        return False
    if result.key not in keys_of(result, question, Origin(RECORDER_VERSION, "")):
        return False
    try:
        return is_reusable(result.unpack(), question.settings)
    except MachineError:
        return False


def is_of(result: StoredResult, facts: MachineFacts | None) -> bool:
    """Return whether a result comes from this hardware class and interpreter."""
    seen = (result.spec.get("hardware_class"), result.spec.get("interpreter"))
    return facts is not None and seen == (facts.hardware_class, facts.interpreter)
