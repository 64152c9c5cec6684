"""Tiny repositories and the jobs that probe them, for tests of the workers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bisect_train.core.changes import Subtree, Variant
from bisect_train.core.executor import ExecutorEvent, ProbeFinished
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.probe import Pack, ProbeJob, ProbeResult, ProbeSpec, Rung, RunSettings
from bisect_train_workers.node import NodeHome
from bisect_train_workers.probe_task import NodeTrouble, run_probe
from bisect_train_workers.workplaces import TaskContext

FAKE_RECORDER = Path(__file__).resolve().parent / "fake_recorder"
TEN_STEPS = "import fake_training\nfor idx in range(10):\n    fake_training.step(1.0 / (idx + 1))\n    print('step', idx)\n"
FOREVER = "import time\nprint('begun', flush=True)\nwhile True:\n    time.sleep(0.05)\n"


@dataclass(frozen=True)
class Commit:
    """One commit of a TinyRepo with all the objects it needs."""

    id: str
    tree: str
    pack: Pack


@dataclass
class TinyRepo:
    """A repository in a folder, written commit by commit."""

    folder: Path
    commits: list[Commit] = field(default_factory=list)

    def git(self, *args: str, stdin: bytes = b"") -> bytes:
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        env.update(GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_NOSYSTEM="1")
        who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always"]
        return subprocess.run(
            ["git", *who, *args], cwd=self.folder, input=stdin, env=env, check=True, capture_output=True
        ).stdout

    def commit(self, files: dict[str, str | bytes | None], *, message: str = "change") -> Commit:
        """Write files (None removes one) and commit; returns the commit with a pack of its tree."""
        if not (self.folder / ".git").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.git("init", "-q")
        for name, content in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.git("add", "-A", "-f")
        return self.commit_index(message)

    def commit_index(self, message: str = "change") -> Commit:
        self.git("commit", "-q", "--allow-empty", "-m", message)
        commit = self.git("rev-parse", "HEAD").decode().strip()
        tree = self.git("rev-parse", "HEAD^{tree}").decode().strip()
        made = Commit(commit, tree, pack_of(self, commit, tree))
        self.commits.append(made)
        return made


def pack_of(repo: TinyRepo, *names: str) -> Pack:
    """Return a pack of these objects and all trees and files below them; parents of commits are left out."""
    listed = repo.git("rev-list", "--objects", "--no-walk", *names)
    ids = [line.split()[0] for line in listed.splitlines()]
    data = repo.git("pack-objects", "--stdout", "-q", stdin=b"\n".join(ids) + b"\n")
    return Pack(hashlib.sha256(data).hexdigest(), data)


def make_settings(**changes: Any) -> RunSettings:
    return RunSettings(**{"python": sys.executable, "timeout_s": 30.0, **changes})


def make_job(
    commit: Commit,
    *,
    id: str = "job",
    command: tuple[str, ...] = ("python", "train.py"),
    steps: int | None = 3,
    ranks: int = 1,
    seed_idx: int = 0,
    settings: RunSettings | None = None,
    subtrees: tuple[Subtree, ...] = (),
    packs: tuple[Pack, ...] = (),
    **variant: Any,
) -> ProbeJob:
    state = Variant(commit.tree, commit.id, command, subtrees=subtrees, **variant)
    spec = ProbeSpec(state, Rung(steps, ranks), seed_idx)
    return ProbeJob(id, spec, settings or make_settings(), "repo", (commit.pack, *packs))


def job_of(folder: Path, program: str, **changes: Any) -> ProbeJob:
    """Return a job for a new repository that holds one program, `train.py`."""
    return make_job(TinyRepo(folder).commit({"train.py": program}), **changes)


def context_of(job: ProbeJob, home: Path, *, recorder: Path = FAKE_RECORDER) -> TaskContext:
    packs = {pack.id: pack.data for pack in job.packs}
    return TaskContext(NodeHome(home), tuple(packs), packs.__getitem__, recorder=recorder)


def run_job(job: ProbeJob, home: Path, *, recorder: Path = FAKE_RECORDER) -> list[ExecutorEvent | NodeTrouble]:
    return list(run_probe(job, context_of(job, home, recorder=recorder)))


def result_of(job: ProbeJob, home: Path, *, recorder: Path = FAKE_RECORDER) -> ProbeResult:
    last = run_job(job, home, recorder=recorder)[-1]
    assert isinstance(last, ProbeFinished), last
    return last.result


def fingerprint_of(job: ProbeJob, home: Path, *, recorder: Path = FAKE_RECORDER) -> Fingerprint:
    return result_of(job, home, recorder=recorder).fingerprint
