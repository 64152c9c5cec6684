"""Seven nights of a branch with real trainings on Ray, told to a webhook; two of them are killed (SIGKILL) in the middle."""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bisect_train.store.contract import PROBE_FINISHED
from bisect_train.store.home import open_store
from tests.support.branch_story import BRANCH, MIN_EFFECT, BranchStory
from tests.support.command_line import CommandLine, family_of
from tests.support.receivers import WebhookReceiver, start_receiver

PROGRAM = """\
import torch

import settings

torch.manual_seed(7)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(20):
    x = torch.randn(64, 8)
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean() + settings.PENALTY
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, "loss", loss.item(), flush=True)
"""


@dataclass(frozen=True)
class Nights:
    """The nights of a story, each a command of its own."""

    story: BranchStory
    line: CommandLine
    hook: WebhookReceiver

    @property
    def command(self) -> list[str]:
        watch = ["--branch", BRANCH, "--pinned", self.story.commits["start"], "--tell", self.hook.url]
        probe = ["--min-effect", str(MIN_EFFECT), "--steps", "8", "--python", sys.executable, "--quiet"]
        return ["nightly", *watch, *probe, "--json", str(self.line.home / "night.json"), "--", "python", "train.py"]

    def run(self, number: int) -> dict[str, Any]:
        self.story.go_to(number)
        began_s = time.monotonic()
        status, said = self.line.run(*self.command)
        data: dict[str, Any] = json.loads((self.line.home / "night.json").read_text())
        print(f"night {number}: status {status}, {time.monotonic() - began_s:.0f} s, told {self.told()}", flush=True)
        assert status == data["exit_status"], said
        return data

    def kill(self, number: int, *, num_probes: int) -> None:
        """Begin a night and kill it once so many more probes have ended."""
        self.story.go_to(number)
        before = self.num_finished()
        process = self.line.start(*self.command)
        while self.num_finished() < before + num_probes:
            assert process.poll() is None, "the night ended before it could be killed"
            time.sleep(0.1)
        family = family_of(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.line.wait_until_gone(family, limit_s=30.0)

    def num_finished(self) -> int:
        store = open_store(self.line.home)
        try:
            return sum(event.kind == PROBE_FINISHED for item in store.list() for event in store.events(item.id))
        finally:
            store.close()

    def told(self) -> list[tuple[str, str]]:
        return [(request.data["state"], request.data["kind"]) for request in self.hook.taken]


@pytest.mark.scenario
@pytest.mark.timeout(1800)
def test_seven_nights_of_real_trainings_are_told_once_each(tmp_path: Path) -> None:
    story = BranchStory.build(tmp_path / "trainer", program=PROGRAM)
    commits = story.commits
    (tmp_path / "home").mkdir()
    with start_receiver() as hook:
        nights = Nights(story, CommandLine(story.repo.path, tmp_path / "home"), hook)
        assert nights.run(1)["last_good"] == commits["start"]
        assert nights.run(2)["last_good"] == commits["docs"]
        nights.kill(3, num_probes=3)
        assert nights.run(3)["exit_status"] == 5
        assert nights.run(4)["exit_status"] == 5
        assert nights.told() == [("open", "regression")]
        assert nights.run(5)["exit_status"] == 0
        nights.kill(6, num_probes=4)
        assert nights.run(6)["exit_status"] == 5
        nights.line.run("nightly", "expect", commits["meant"], "--reason", "a smaller model")
        assert nights.run(6)["last_good"] == commits["creep1"]
        assert nights.run(7)["exit_status"] == 5
        of_a_commit = [("open", "regression"), ("closed", "regression"), ("open", "regression"), ("intended", "regression")]
        assert nights.told() == [*of_a_commit, ("open", "drift")]
        opened, closed, _, intended, drift = (request.data for request in hook.taken)
        assert [item["id"] for item in opened["culprits"]] == [commits["worse"]]
        assert (closed["id"], closed["fixed_by"]) == (opened["id"], commits["mended"])
        assert [item["id"] for item in intended["culprits"]] == [commits["meant"]]
        assert drift["good"] == commits["meant"]
        _, history = nights.line.run("nightly", "history", "--no-color")
        print(history)
        nights.line.wait_until_gone([], limit_s=10.0)
