"""The command line in this process, with simulated probes on the repository of a `Lab`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from bisect_train.cli.main import main
from bisect_train.core.errors import InterruptedByUser
from bisect_train.core.probe import ProbeJob
from bisect_train.store.contract import Store, StoredEvent
from bisect_train.store.home import open_store
from bisect_train_workers.simulated import SimulatedRun
from tests.support.simulated_bisection import Lab, drive, stop_after

CULPRIT = 9
Script = Callable[[ProbeJob], SimulatedRun]


@dataclass
class Bench:
    """The command line in this process, with simulated probes; `script` may be replaced."""

    lab: Lab
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    script: Script

    def call(self, *args: str) -> tuple[int, str, str]:
        """Run a command; return status, stdout, stderr."""
        self.monkeypatch.setattr(sys, "argv", ["bisect-train", *args])
        with pytest.raises(SystemExit) as caught:
            main()
        said = self.capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, said.out, said.err

    def succeed(self, *args: str) -> str:
        """Run a command that must end with status 0; return stdout."""
        status, out, err = self.call(*args)
        assert status == 0, err
        return out

    def refuse(self, *args: str) -> str:
        """Run a command that must be refused as bad input; return stderr."""
        status, _, err = self.call(*args)
        assert status == 2, err
        return err

    @contextmanager
    def store(self) -> Iterator[Store]:
        opened = open_store(self.lab.home)
        try:
            yield opened
        finally:
            opened.close()

    def events(self, name: str = "last") -> tuple[StoredEvent, ...]:
        with self.store() as store:
            return store.events(store.load(name).id)

    def ask(self) -> str:
        """Store the lab's question, run nothing; return the id."""
        with self.store() as store:
            return store.create(self.lab.question().to_json(), title="simulated")

    def interrupt(self, num_started: int, *, script: Script | None = None) -> str:
        """Run the lab's question until so many probes were started; return the id."""
        with self.store() as store:
            name = store.create(self.lab.question().to_json(), title="simulated")
            executor = self.lab.executor(script or self.script, slots=1)
            with pytest.raises(InterruptedByUser):
                drive(self.lab, store, bisection_id=name, executor=executor, listener=stop_after(num_started))
        return name

    def report(self, *args: str) -> dict[str, Any]:
        """Run a command with --json and return the report."""
        place = self.lab.home / "report.json"
        self.call(*args, "--json", str(place))
        data: dict[str, Any] = json.loads(place.read_text())
        return data

    def commit(self, idx: int) -> str:
        return self.lab.commits[idx]


def requests_of(events: tuple[StoredEvent, ...]) -> list[tuple[str, int, int]]:
    """Return point, seed and attempt of each probe that was finished."""
    specs = [event.data["spec"] for event in events if event.kind == "probe_finished"]
    return [(spec["point"], spec["seed_idx"], spec["attempt"]) for spec in specs]


def culprits_of(report: dict[str, Any]) -> list[str]:
    return [change["id"] for culprit in report["culprits"] for change in culprit["changes"]]


Run = Callable[..., tuple[int, str, str]]
"""The fixture `run`: runs the command line in the repository of `repo`; returns status, stdout, stderr."""

BOTH = ("run", "--good", "old", "--dry-run")
TRAINING = ("--", "python", "train.py")
