"""A scenario's command in this process, with another executor: on recorded runs, for the tests, or while they are recorded."""

from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from bisect_train.changes import package_axis
from bisect_train.cli import driving
from bisect_train.cli.main import group
from bisect_train.core.executor import Executor
from bisect_train.core.probe import ProbeJob
from bisect_train.core.question import Question
from bisect_train_workers.simulated import Script, SimulatedExecutor, SimulatedRun
from tests.scenarios.library.recording import Recording, RunKey, name_of
from tests.scenarios.library.scenario import Built, Scenario
from tests.support.git_repos import git


class NotRecordedError(AssertionError):
    """A replay asks for a run that its recording does not have."""


OpenExecutor = Callable[[Question, Path], AbstractContextManager[Executor]]


def run_command(
    built: Built, home: Path, open_executor: OpenExecutor, *, options: Sequence[str] = ()
) -> tuple[int, dict[str, Any]]:
    """Run a scenario's command line as `make scenarios` does, but in this process; return exit status and report.json."""
    target = home.parent / "report.json"
    arguments = ["run", "--repo", str(built.path), "--good", built.good, "--bad", built.bad, "--python", sys.executable]
    arguments += ["--quiet", "--no-color", "--json", str(target), *built.options, *options, "--", *built.command]
    with mock.patch.object(driving, "open_executor", open_executor), mock.patch.dict("os.environ", BISECT_TRAIN_HOME=str(home)):
        status = group.main(arguments, standalone_mode=False, prog_name="bisect-train")
    return int(status or 0), json.loads(target.read_text())


def replay(
    scenario: Scenario,
    folder: Path,
    *,
    slots: int = 2,
    recording: Recording | None = None,
    train: Callable[[ProbeJob], None] | None = None,
    options: Sequence[str] = (),
) -> tuple[Built, int, dict[str, Any]]:
    """Run a scenario's command on its recorded runs; return its repository, the exit status and report.json.

    Args:
        scenario: what is run.
        folder: an empty one.
        slots: probes at the same time.
        recording: in place of the one on disk.
        train: called with a job that is not recorded, and records it.
        options: further ones of the command line.
    Raises:
        NotRecordedError: the search asks for a run that was not recorded.
    """
    script = scenario_script(recording or Recording.read(scenario.name), death_share=scenario.death_share, train=train)

    @contextmanager
    def open_simulated(question: Question, home: Path) -> Iterator[Executor]:
        yield SimulatedExecutor(script, slots=slots)

    built = scenario.build(folder)
    with ExitStack() as stack:
        if train is None:  # nothing is run, so nothing is built
            stack.enter_context(mock.patch.object(package_axis, "wheel_of_commit", _empty_wheel))
        return built, *run_command(built, folder / "home", open_simulated, options=options)


def _empty_wheel(repo: Path, commit: str, out: Path, *, python: str) -> Path:
    """Return an empty wheel where that of a commit would lie."""
    name = re.search(r'^name = "(.*)"$', git(repo, "show", f"{commit}:pyproject.toml"), re.MULTILINE)
    assert name is not None
    wheel = out / commit / f"{name[1]}-0-py3-none-any.whl"
    wheel.parent.mkdir(parents=True, exist_ok=True)
    wheel.touch()
    return wheel


def scenario_script(
    recording: Recording, *, death_share: float = 0.0, train: Callable[[ProbeJob], None] | None = None
) -> Script:
    """Return the script that gives each job its recorded run; a share of the jobs is lost, the same ones in every replay."""
    num_tries: Counter[RunKey] = Counter()

    def run(job: ProbeJob) -> SimulatedRun:
        spec = job.spec
        key = (name_of(spec), spec.seed_idx, spec.repeat)
        num_tries[key] += 1
        if random.Random(repr((key, num_tries[key]))).random() < death_share:
            return SimulatedRun(None, 3.0, reason="killed by signal 9")
        found = recording.find(spec)
        if found is None and train is not None:
            train(job)
            found = recording.find(spec)
        if found is None:
            what = f"variant {key[0][:12]} (commit {spec.variant.commit[:12]}), seed {spec.seed_idx}, repeat {spec.repeat}"
            renew = f"renew it: python -m tests.support.recorded scenarios {recording.name}"
            raise NotRecordedError(f"{recording.name}: the search asks for a run that is not recorded: {what}; {renew}")
        return SimulatedRun(found, 3.0)

    return run
