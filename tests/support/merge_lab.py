"""Repositories with merges whose commits each add one file, so that a probe's tree tells which commits it holds."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.cli import driving
from bisect_train.cli.asked import Output
from bisect_train.cli.desk import Desk
from bisect_train.cli.reopening import reopen, report_of
from bisect_train.coordinator import children_of
from bisect_train.core.executor import Executor
from bisect_train.core.probe import ProbeJob
from bisect_train.core.question import Question
from bisect_train.store.contract import Store
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun
from tests.support.git_repos import UserRepo, question_of
from tests.support.simulated_bisection import fingerprint_of

Script = Callable[[ProbeJob], SimulatedRun]


@dataclass
class MergeLab:
    """A repository made commit by commit, and bisections of it by a simulated executor.

    Attributes:
        names: commits by the name of the file that each adds; of merges, by the name given.
        culprits: names of the files that make a run worse.
        ran: ids of the jobs that were started.
        num_opened: executors that were opened.
    """

    repo: UserRepo
    home: Path
    names: dict[str, str] = field(default_factory=dict)
    culprits: frozenset[str] = frozenset()
    ran: list[str] = field(default_factory=list)
    num_opened: int = 0

    @staticmethod
    def create(folder: Path) -> MergeLab:
        """Make the repository with its good end, the commit `good` on the branch main."""
        lab = MergeLab(UserRepo.create(folder / "repo"), folder / "home")
        lab.home.mkdir()
        lab.repo.write("train.py", "pass\n")
        lab.commit("good")
        return lab

    def commit(self, *names: str, on: str = "") -> None:
        """Make a commit for each name, on a branch if one is named."""
        if on:
            self.repo.git("switch", "-q", on)
        for name in names:
            self.names[name] = self.repo.commit({name: f"{name}\n"}, message=f"add {name}")

    def branch(self, name: str, at: str = "") -> None:
        """Make a branch and switch to it."""
        self.repo.git("switch", "-q", "-c", name, *([self.names[at]] if at else []))

    def merge(self, name: str, *branches: str, on: str = "main", own: str = "") -> None:
        """Merge branches; with `own` the author adds a file of that name in the merge itself."""
        self.repo.git("switch", "-q", on)
        self.repo.git("merge", "-q", "--no-ff", "--no-commit", *branches)
        self.names[name] = self.repo.commit({own: "own\n"} if own else None, message=f"merge {name}")

    def question(self, good: str = "good", **more: Any) -> Question:
        """Return the question from a commit to the newest of main; `more` goes to `Range`, or to the question."""
        fields = Question.__dataclass_fields__
        of_question = {key: value for key, value in more.items() if key in fields}
        of_range = {key: value for key, value in more.items() if key not in fields}
        question = question_of(self.names[good], self.repo.git("rev-parse", "main"), **of_range)
        return replace(question, repo=str(self.repo.path), **of_question)

    def space(self, question: Question) -> ChangeSpace:
        """Return the changes that a question is about."""
        return build_space(self.repo.open(self.home), question)

    def files_of(self, job: ProbeJob) -> frozenset[str]:
        """Return the names of the files that a probe's tree holds."""
        listed = self.repo.open(self.home).git.text("ls-tree", "--name-only", job.spec.variant.tree)
        return frozenset(listed.split())

    def run_of(self, job: ProbeJob) -> SimulatedRun:
        """The script: a run is worse where its tree holds a culprit; each culprit adds as much."""
        self.ran.append(job.id)
        num_bad = len(self.culprits & self.files_of(job))
        return SimulatedRun(fingerprint_of(1.0 + num_bad, seed_idx=job.spec.seed_idx))

    def use(self, monkeypatch: pytest.MonkeyPatch, script: Script | None = None, *, slots: int = 2) -> None:
        """Let the command line run its probes by a script on a simulated executor."""

        @contextmanager
        def open_simulated(question: Question, home: Path) -> Iterator[Executor]:
            self.num_opened += 1
            executor = SimulatedExecutor(script or self.run_of, slots=slots)
            yield executor
            executor.close()

        monkeypatch.setattr(driving, "open_executor", open_simulated)

    def desk(self, store: Store | None = None) -> Desk:
        """Return home and store of a command."""
        return Desk(self.home, store or MemoryStore())

    def start(self, desk: Desk, question: Question, *, out: Path) -> int:
        """Ask a question as `run` does and write its report; return the exit status."""
        return driving.start_bisection(desk, question, self.space(question), title="lab", output=Output(json=out, quiet=True))

    def resume(self, desk: Desk, name: str, *, out: Path) -> int:
        """Go on with a stored question as `resume` does; return the exit status."""
        question = Question.of_json(desk.store.load(name).question)
        output = Output(json=out, quiet=True)
        return driving.drive_bisection(desk, name, question, self.space(question), output=output)


@pytest.fixture
def made_lab(tmp_path: Path) -> MergeLab:
    """Return a fixture: `simple_lab`; a file of tests names it `lab = made_lab`."""
    return simple_lab(tmp_path)


def simple_lab(folder: Path, *, own: str = "") -> MergeLab:
    """Return main: good m1 m2 M m3, where M brings in b1..b5 that branched off at m1."""
    lab = MergeLab.create(folder)
    lab.commit("m1")
    lab.branch("side")
    lab.commit("b1", "b2", "b3", "b4", "b5")
    lab.commit("m2", on="main")
    lab.merge("M", "side", own=own)
    lab.commit("m3", on="main")
    return lab


def answer_of(lab: MergeLab, tmp_path: Path, question: Question | None = None, *, desk: Desk | None = None) -> dict[str, Any]:
    """Ask a question to its end, which must be exit status 0, and return report.json."""
    out = tmp_path / "report.json"
    assert lab.start(desk or lab.desk(), question or lab.question(), out=out) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def commits_inside(report: dict[str, Any]) -> list[str]:
    return [part["id"] for part in report["culprits"][0]["inside"] if part["kind"] == "commit"]


def kinds_of(desk: Desk, name: str) -> Counter[str]:
    return Counter(event.kind for event in desk.store.events(name))


def child_of(desk: Desk, name: str) -> str:
    (child,) = children_of(desk.store.events(name)).values()
    return child


def explained(desk: Desk) -> str:
    return " ".join(report_of(desk, reopen(desk, "last")).explanation)


def by_hand(lab: MergeLab) -> str:
    """Return the command that looks inside the merge of `simple_lab`."""
    return f"bisect-train run --good {lab.names['m2'][:12]} --bad {lab.names['M'][:12]} --no-first-parent"
