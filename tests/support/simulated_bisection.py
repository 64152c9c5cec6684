"""Whole bisections without a training: a real small git repository, the memory store and the simulated executor."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.coordinator import Coordinator, CoordinatorEvent, Ended, ProbeStarted
from bisect_train.core.executor import Executor
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint, RankRecord, StepRecord
from bisect_train.core.probe import MachineFacts, ProbeJob
from bisect_train.core.question import Limits, Question
from bisect_train.store.contract import PROBE_FINISHED, PROBE_REUSED, Store
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SIMULATED_FACTS, SimulatedExecutor, SimulatedRun
from tests.support.git_repos import UserRepo, question_of

STEPS = 4


def fingerprint_of(level: float, *, seed_idx: int, salt: str = "", ending: Ending | None = None) -> Fingerprint:
    """Return a run whose loss lies around `level`, spread by the seed; the same arguments give the same bits."""
    seed = int.from_bytes(hashlib.sha256(f"{seed_idx}/{salt}".encode()).digest()[:4], "big")
    offset = 0.02 * np.random.default_rng(seed).normal()
    steps = tuple(StepRecord(idx, loss=float(level + offset + 1.0 / (1 + idx)), param_hash=f"{seed}") for idx in range(STEPS))
    return Fingerprint(ending or Ending(EndingKind.STOPPED), (RankRecord(0, steps),))


@dataclass
class Lab:
    """A repository whose commit `idx` sets line `idx` of train.py; the tree of a probe tells which commits it holds.

    Attributes:
        commits: from the oldest, the good end.
        culprit: number of the commit that makes it worse.
        same_tree: numbers of commits that change nothing.
        ran: ids of the jobs that were started, by all executors.
    """

    repo: UserRepo
    home: Path
    commits: list[str]
    culprit: int
    same_tree: tuple[int, ...] = ()
    ran: list[str] = field(default_factory=list)

    @staticmethod
    def build(folder: Path, *, num_commits: int = 14, culprit: int = 9, same_tree: tuple[int, ...] = ()) -> Lab:
        """Write the repository: 20 unchanged lines between two that change, so that each commit can be left out."""
        repo = UserRepo.create(folder / "repo")
        done: set[int] = set()
        commits = []
        for idx in range(num_commits):
            if idx not in same_tree:
                done.add(idx)
            lines = [f"part {number} {'new' if number in done else 'old'}\n" + "pass\n" * 4 for number in range(num_commits)]
            commits.append(repo.commit({"train.py": "".join(lines)}, message=f"commit number {idx}"))
        return Lab(repo, folder / "home", commits, culprit, same_tree)

    def question(self, **more: Any) -> Question:
        """Return the question about the whole history."""
        question = question_of(self.commits[0], self.commits[-1])
        question = replace(question, repo=str(self.repo.path))
        return replace(question, **more) if more else question

    def space(self, question: Question) -> ChangeSpace:
        """Return the changes that a question is about."""
        return build_space(self.repo.open(self.home), question)

    def parts_of(self, job: ProbeJob) -> frozenset[int]:
        """Return the numbers of the commits that a probe's tree holds."""
        text = self.repo.open(self.home).git.text("cat-file", "blob", f"{job.spec.variant.tree}:train.py")
        return frozenset(int(number) for number in re.findall(r"^part (\d+) new$", text, re.MULTILINE))

    def level_of(self, job: ProbeJob) -> float:
        """Return the loss that the probe's tree trains to."""
        return 2.0 if self.culprit in self.parts_of(job) else 1.0

    def run_of(self, job: ProbeJob) -> SimulatedRun:
        """The script: each probe takes a second or two and shows its tree's loss."""
        self.ran.append(job.id)
        fingerprint = fingerprint_of(self.level_of(job), seed_idx=job.spec.seed_idx)
        return SimulatedRun(fingerprint, duration_s=1.0 + len(self.ran) % 3)

    def executor(
        self,
        script: Callable[[ProbeJob], SimulatedRun] | None = None,
        *,
        slots: int = 2,
        facts: MachineFacts = SIMULATED_FACTS,
    ) -> SimulatedExecutor:
        """Return an executor on its own virtual clock."""
        return SimulatedExecutor(script or self.run_of, slots=slots, facts=facts)


def drive(
    lab: Lab,
    store: Store,
    *,
    question: Question | None = None,
    bisection_id: str = "",
    executor: Executor | None = None,
    listener: Callable[[CoordinatorEvent], None] = lambda event: None,
    clock: Callable[[], float] = lambda: 0.0,
) -> tuple[str, Ended]:
    """Run or resume a bisection to its answer, as the command line does."""
    asked = question or lab.question()
    name = bisection_id or store.create(asked.to_json(), title="simulated")
    with store.lock(name):
        coordinator = Coordinator(
            asked,
            bisection_id=name,
            space=lab.space(asked),
            store=store,
            executor=executor or lab.executor(),
            listener=listener,
            clock=clock,
        )
        return name, coordinator.run()


def store_at(store: MemoryStore, bisection_id: str, num_events: int) -> MemoryStore:
    """Return a store that ends after the first events of a bisection, as if the coordinator had been killed there."""
    stored = store.load(bisection_id)
    copy = MemoryStore(clock=lambda: stored.created_s)
    assert copy.create(stored.question, title=stored.title) == bisection_id
    results = {probe.key: probe.result for probe in store.results(bisection_id)}
    for event in store.events(bisection_id)[:num_events]:
        assert event.kind != PROBE_REUSED, "results of other bisections are not copied"
        if event.kind == PROBE_FINISHED:
            key = event.data["key"]
            copy.save_result(bisection_id, key, results[key], spec=event.data["spec"])
        else:
            copy.append(bisection_id, event.kind, event.data)
    return copy


def limits(**values: Any) -> Limits:
    """Return limits with some values of their own."""
    return replace(Limits(), **values)


def stop_after(num_started: int) -> Callable[[CoordinatorEvent], None]:
    """Return a listener that raises KeyboardInterrupt, as Ctrl-C would, when so many probes were started."""
    started = 0

    def listen(event: CoordinatorEvent) -> None:
        nonlocal started
        started += isinstance(event, ProbeStarted)
        if started == num_started:
            raise KeyboardInterrupt

    return listen


def kinds_of(store: Store, bisection_id: str) -> Counter[str]:
    return Counter(event.kind for event in store.events(bisection_id))


def keys_of(store: Store, bisection_id: str, kind: str) -> list[str]:
    return [event.data["key"] for event in store.events(bisection_id) if event.kind == kind]


def culprit_of(lab: Lab, ended: Ended) -> list[str]:
    space = lab.space(lab.question())
    return [space.changes[idx].id for culprit in ended.answer.culprits for idx in culprit.changes]


def essence_of(ended: Ended) -> list[object]:
    """Return what was answered; how sure the search was may differ with the probes that happened to run."""
    proved = [
        (culprit.changes, culprit.is_necessary, culprit.is_sufficient, [claim.status for claim in culprit.claims])
        for culprit in ended.answer.culprits
    ]
    return [ended.answer.status, proved]


def assert_isolated(lab: Lab, ended: Ended) -> None:
    assert ended.answer.status == "isolated", ended.answer
    assert culprit_of(lab, ended) == [lab.commits[lab.culprit]]


def lossy(lab: Lab, is_lost: Callable[[ProbeJob, int], bool]) -> Callable[[ProbeJob], SimulatedRun]:
    """Return a script whose probes are lost where `is_lost(job, try)` says so."""
    tries: Counter[str] = Counter()

    def script(job: ProbeJob) -> SimulatedRun:
        tries[job.id] += 1
        if is_lost(job, tries[job.id]):
            return SimulatedRun(None, reason="the node died")
        return lab.run_of(job)

    return script


@pytest.fixture(scope="module")
def module_lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Return a fixture: one repository for a file of tests, which names it `lab = module_lab`."""
    return Lab.build(tmp_path_factory.mktemp("lab"))
