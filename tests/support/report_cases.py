"""Whole bisections for the report's tests: a made-up space, made-up training runs, and the real plan that they lead to."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from bisect_train.changes.history import CommitRange
from bisect_train.changes.priors import Priors
from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.observing import observe, rules_for, spec_of_request
from bisect_train.core.changes import Change, ChangeKind, FilePatch, Point, Variant
from bisect_train.core.errors import UnbuildableError
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint, RankRecord, StepRecord
from bisect_train.core.probe import MachineFacts, ProbeResult, Rung, RunSettings
from bisect_train.core.question import ConfigEnd, Limits, Metric, Question, Range
from bisect_train.report import ChangePart, Cost, ReportData, build_report
from bisect_train.search.plan import make_plan
from bisect_train.search.terms import Known, Plan
from bisect_train.store.contract import StoredBisection, StoredProbe

FACTS = MachineFacts("made-up CPU, avx2, no GPU", "python 3.11, torch 2.5", 2)
HEALTHY = Ending(EndingKind.STOPPED)


def sha(text: str) -> str:
    """Return 40 hex digits for a text."""
    return hashlib.sha1(text.encode()).hexdigest()


def make_commits(num: int, *, titles: dict[int, str] | None = None) -> tuple[Change, ...]:
    """Return commits with dull subjects, some given by index."""
    names = titles or {}
    return tuple(
        Change(ChangeKind.COMMIT, sha(f"commit {i}"), names.get(i, f"tidy up part {i}"), "Ada, 2024-05-01") for i in range(num)
    )


@dataclass
class FakeSpace:
    """What a report needs of a `ChangeSpace`, without git."""

    changes: tuple[Change, ...]
    command: tuple[str, ...] = ("python", "train.py", "--config={config}")
    good_is_base: bool = True
    skipped: frozenset[int] = frozenset()
    unlikely: frozenset[int] = frozenset()
    priors: Priors = field(default_factory=Priors)
    unbuildable: dict[Point, str] = field(default_factory=dict)

    @property
    def commits(self) -> CommitRange:
        commits = tuple(change.id for change in self.changes if change.kind is ChangeKind.COMMIT)
        base = sha("base")
        return CommitRange(base, base, True, commits[-1] if commits else base, commits)

    @property
    def num_ordered(self) -> int:
        return len(self.commits.commits)

    def patch_of(self, indices: Sequence[int]) -> str:
        return ""

    def variant(self, point: Point) -> Variant:
        return Variant(sha(f"tree {point.to_text()}"), sha(f"commit of {point.to_text()}"), self.command)

    def reproduce(self, point: Point) -> tuple[str, ...]:
        if point.is_prefix:
            commit = self.commits.base if point.prefix <= 0 else self.changes[min(point.prefix, len(self.changes)) - 1].id
            return (f"git checkout --detach {commit}",)
        return ("git checkout --detach HEAD", "git revert --no-commit HEAD")


def make_question(**more: Any) -> Question:
    """Return a question about 40 steps of a loss."""
    settings = more.pop("settings", RunSettings(python="/env/bin/python"))
    values: dict[str, Any] = {
        "kind": "run",
        "repo": "/home/ada/nano",
        "range": Range((sha("base"),), sha("bad")),
        "command": ("python", "train.py", "--config={config}"),
        "settings": settings,
        "rung": Rung(40, 1),
        "metric": Metric("loss", "tail", "lower"),
        "config_path": "configs/train.yaml",
        "limits": Limits(max_seeds=8),
    }
    return Question(**{**values, **more})


def make_fingerprint(
    level: float, *, seed: int = 0, num_steps: int = 40, noise: float = 0.02, salt: str = "", from_step: int = 0
) -> Fingerprint:
    """Return a healthy run whose loss falls towards `level`; the same arguments give the same bits."""
    rng = np.random.default_rng(seed + 1)
    wobble = noise * rng.normal() + 0.01 * rng.normal(size=num_steps)
    steps = []
    for idx in range(num_steps):
        base = level if idx >= from_step else 3.0
        loss = float(base + 1.2 * math.exp(-idx / 8.0) + wobble[idx])
        mark = salt if idx >= from_step else ""
        steps.append(
            StepRecord(
                step=idx,
                loss=loss,
                micro=(loss,),
                grad_norm=1.0,
                clip_norm=1.0 + loss / 10.0,
                lr=(1e-3,),
                param_hash=sha(f"{seed}/{idx}/{mark}")[:16] if idx % 10 == 0 else None,
                batch_hash=sha(f"batch {seed}/{idx}")[:16],
                step_s=0.1,
                rss_mib=500.0,
            )
        )
    return Fingerprint(HEALTHY, (RankRecord(0, tuple(steps)),), facts=(("python", "3.11"), ("torch", "2.5")))


def make_failure(
    message: str, *, kind: EndingKind = EndingKind.CRASHED, missing: str = "", steps: int = 0, seed: int = 0
) -> ProbeResult:
    """Return a run that failed after some steps."""
    ranks = make_fingerprint(3.0, seed=seed, num_steps=steps).ranks if steps else (RankRecord(0),)
    ending = Ending(kind, signature=message, message=message, exit_status=1, missing_module=missing)
    log = f'starting\nTraceback (most recent call last):\n  File "train.py", line 3\n{message}\n'
    return ProbeResult("", Fingerprint(ending, ranks), wall_s=2.5, log_tail=log)


Behaviour = Callable[[Point, int, int], "Fingerprint | ProbeResult"]


def step_change(culprit: int, *, good: float = 3.0, bad: float = 3.4, from_step: int = 5) -> Behaviour:
    """Return runs that one change shifts, bitwise equal otherwise."""

    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        is_bad = point.holds(culprit)
        return make_fingerprint(bad if is_bad else good, seed=seed, salt="bad" if is_bad else "", from_step=from_step)

    return behave


@dataclass
class Solved:
    """A bisection that was played to its end, or to a number of probes."""

    question: Question
    space: FakeSpace
    plan: Plan
    probes: list[StoredProbe]

    def report(self, *, inside: tuple[ChangePart, ...] = (), warnings: tuple[str, ...] = ()) -> ReportData:
        stored = StoredBisection("65f0a1b2", 0.0, {}, "what made nano worse?", "finished", None)
        cost = Cost(probes=len(self.probes), cached=3, wall_s=95.0, gpu_s=0.0, rounds=7)
        space = cast(ChangeSpace, self.space)
        return build_report(stored, self.question, space, self.plan, self.probes, cost=cost, warnings=warnings, inside=inside)


def play(behave: Behaviour, space: FakeSpace, question: Question | None = None, *, max_probes: int = 400) -> Solved:
    """Run a bisection by the real plan, two probes at a time, until its answer or `max_probes`."""
    question = question or make_question()
    rules = rules_for(question, cast(ChangeSpace, space))
    probes: list[StoredProbe] = []
    observations = []
    unbuildable: dict[Point, str] = {}
    while True:
        plan = make_plan(rules, Known(observations, unbuildable, (), 2))
        if plan.answer is not None or len(probes) >= max_probes:
            return Solved(question, space, plan, probes)
        for request in plan.wanted[:2]:
            if request.point in space.unbuildable:
                unbuildable[request.point] = space.unbuildable[request.point]
                continue
            try:
                variant = space.variant(request.point)
            except UnbuildableError as error:
                unbuildable[request.point] = str(error)
                continue
            shown = behave(request.point, request.seed_idx, request.repeat)
            result = shown if isinstance(shown, ProbeResult) else ProbeResult("", shown, wall_s=4.2)
            spec = spec_of_request(request, variant, FACTS, question)
            probes.append(StoredProbe(sha(f"probe {len(probes)}")[:16], "65f0a1b2", spec, result, float(len(probes))))
            observations.append(observe(request, result.fingerprint, question))


def config_space(num: int = 3) -> tuple[FakeSpace, Question]:
    """Return a space of config keys between two files, and its `check` question."""
    changes = tuple(Change(ChangeKind.CONFIG, f"optim.key{i}", f"optim.key{i}: {i} -> {i + 1}") for i in range(num))
    ends = [ConfigEnd(f"configs/{name}.yaml", FilePatch("config.yaml", f"name: {name}\n")) for name in ("a", "b")]
    return FakeSpace(changes), make_question(kind="check", good_config=ends[0], bad_config=ends[1])


CULPRIT = 13
"""Index of the change that is the culprit in `commit_space` and `noisy`."""


def commit_space(num: int = 24) -> FakeSpace:
    """Return a history of commits; the culprit has a subject of its own."""
    return FakeSpace(make_commits(num, titles={CULPRIT: "use the fast path"}))


def noisy(gap: float) -> Solved:
    """Return a bisection of runs that never repeat bitwise."""

    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        own = sum(ord(letter) * (idx + 1) for idx, letter in enumerate(f"{point.to_text()}/{seed}/{repeat}"))
        level = 3.0 + (gap if point.holds(CULPRIT) else 0.0)
        return make_fingerprint(level, seed=own, salt=f"{point.to_text()}/{repeat}")

    return play(behave, commit_space())


def unlucky(culprit: int, *, rate: float) -> Behaviour:
    """Return runs that fail by chance, at this rate, where they hold the culprit; the same seed again is as lucky."""

    def behave(point: Point, seed: int, repeat: int) -> Fingerprint | ProbeResult:
        is_unlucky = np.random.default_rng([seed, point.prefix, len(point.plus), len(point.minus)]).random() < rate
        return make_failure("RuntimeError: boom") if point.holds(culprit) and is_unlucky else make_fingerprint(3.0, seed=seed)

    return behave
