"""The self-check behind `doctor`: each finding says what was looked at, what was found, and what helps."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.cli.driving import open_executor
from bisect_train.coordinator import SingleProbe, run_singles
from bisect_train.core.errors import BisectTrainError
from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.interpreters import ALONE
from bisect_train.core.probe import Rung, RunSettings
from bisect_train.core.question import Question, Range
from bisect_train.store.home import default_home, ensure_home, open_store
from bisect_train.store.memory import MemoryStore

MIN_GIT = (2, 38)
MIN_FREE_GIB = 2.0

TRAIN_PY = """\
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    loss = (model(torch.ones(2, 4)) ** 2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print("step", step, "loss", loss.item())
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    what: str
    is_fine: bool
    found: str
    remedy: str = ""


def check_machine(python: str, repo: Path) -> Iterator[Finding]:
    """Yield findings, the quick ones first; the last one runs a real probe on Ray."""
    yield Finding("python", sys.version_info >= (3, 10), sys.version.split()[0], "bisect-train needs Python 3.10 or newer")
    home = default_home()
    try:
        open_store(ensure_home(home)).close()
        free_gib = shutil.disk_usage(home).free / 2**30
        yield Finding("home", free_gib >= MIN_FREE_GIB, f"{home} ({free_gib:.0f} GiB free)", "free some disk space")
    except BisectTrainError as error:
        yield Finding("home", False, error.message, error.hint)
        return
    yield _check_git()
    yield _check_repository(repo, home)
    torch = _check_torch(python)
    yield torch
    if torch.is_fine:
        yield _check_probe(python, home)


def _check_git() -> Finding:
    try:
        text = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return Finding("git", False, "not found", "install git 2.38 or newer")
    digits = [int(part) for part in text.split()[2].split(".")[:2] if part.isdigit()]
    remedy = "git 2.38 or newer is needed to undo a commit in memory; without it answers stay candidates"
    return Finding("git", tuple(digits) >= MIN_GIT, text, remedy)


def _check_repository(repo: Path, home: Path) -> Finding:
    try:
        repository = Repository.open(repo, home=home)
    except BisectTrainError as error:
        return Finding("repository", True, f"{repo.absolute()} is none ({error.message})")
    return Finding("repository", True, str(repository.root))


def _check_torch(python: str) -> Finding:
    code = f"{ALONE}import torch; print(torch.__version__, 'CUDA' if torch.cuda.is_available() else 'CPU')"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["failed"])[-1]
        return Finding("torch", False, f"{python}: {last}", "name the training interpreter with --python")
    return Finding("torch", True, f"{done.stdout.strip()} in {python}")


def _check_probe(python: str, home: Path) -> Finding:
    """Run a three-step training on Ray through the whole machinery, in a repository of its own."""
    with tempfile.TemporaryDirectory(prefix="bisect-train-doctor-") as folder:
        repo = Path(folder) / "repo"
        repo.mkdir()
        (repo / "train.py").write_text(TRAIN_PY)
        subprocess.run(["git", "init", "-q", str(repo)], check=True, capture_output=True)
        try:
            repository = Repository.open(repo, home=home)
            commit = repository.snapshot_worktree()
            settings = RunSettings(python, timeout_s=120.0)
            commits = Range((commit,), commit)
            question = Question("probe", str(repo), commits, ("python", "train.py"), settings, Rung(3))
            space = build_space(repository, question)
            store = MemoryStore()
            with open_executor(question, home) as executor:
                probe_id = store.create(question.to_json(), title="doctor")
                [(_, result)] = run_singles(
                    [SingleProbe(question, space)], executor=executor, store=store, bisection_id=probe_id
                )
        except BisectTrainError as error:
            return Finding("probe", False, error.message, error.hint)
    ending = result.fingerprint.ending
    is_fine = ending.kind is EndingKind.STOPPED and result.fingerprint.num_steps == 3
    found = f"{ending.kind.value}, {result.fingerprint.num_steps} steps in {result.wall_s:.1f} s on Ray"
    return Finding("probe", is_fine, found, ending.message)
