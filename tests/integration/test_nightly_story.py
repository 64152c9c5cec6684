"""Seven nights of a branch through the command line: simulated probes; real git, store, webhook and SIGKILL."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bisect_train.changes.repository import Repository
from bisect_train.cli import driving
from bisect_train.cli.main import main
from bisect_train.core.probe import ProbeJob
from bisect_train.core.question import Question
from bisect_train.store.home import open_store
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun
from tests.support.branch_story import BRANCH, MIN_EFFECT, BranchStory, part_path, part_text
from tests.support.command_line import CommandLine
from tests.support.nightly_line import level_of
from tests.support.receivers import WebhookReceiver, start_receiver
from tests.support.simulated_bisection import fingerprint_of

ROOT = Path(__file__).parents[2]


@dataclass
class Stage:
    """The command line on a branch's story: in this process, or in one that kills itself."""

    story: BranchStory
    home: Path
    hook: WebhookReceiver
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    @property
    def options(self) -> list[str]:
        pinned = self.story.commits["start"]
        watch = ["--branch", BRANCH, "--pinned", pinned, "--tell", self.hook.url, "--json", str(self.home / "night.json")]
        return [*watch, "--min-effect", str(MIN_EFFECT), "--steps", "4", "--quiet"]

    def call(self, *args: str) -> tuple[int, str, str]:
        """Run a command in this process; return status, stdout, stderr."""
        self.monkeypatch.setattr(sys, "argv", ["bisect-train", *args])
        with pytest.raises(SystemExit) as caught:
            main()
        said = self.capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, said.out, said.err

    def night(self, number: int, *more: str) -> dict[str, Any]:
        """Run a night; return what it wrote with --json."""
        self.story.go_to(number)
        status, _, err = self.call("nightly", *self.options, *more, "--", "python", "train.py")
        data: dict[str, Any] = json.loads((self.home / "night.json").read_text()) if status in (0, 1, 3, 5) else {}
        assert data.get("exit_status") == status, err
        return data

    def kill(self, number: int, *, at_probe: int) -> None:
        """Begin a night in a process that kills itself when so many probes were started."""
        self.story.go_to(number)
        line = CommandLine(self.story.repo.path, self.home, env={"PYTHONPATH": str(ROOT)})
        command = [sys.executable, "-m", "tests.support.nightly_line", str(at_probe), "nightly", *self.options]
        done = subprocess.run([*command, "--", "python", "train.py"], cwd=line.folder, env=line.environment, timeout=120)
        assert done.returncode == -signal.SIGKILL

    def told(self) -> list[tuple[str, str]]:
        """Return state and kind of what the webhook got."""
        return [(request.data["state"], request.data["kind"]) for request in self.hook.taken]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Stage]:
    story = BranchStory.build(tmp_path / "trainer", program="import settings\n")
    home = tmp_path / "home"
    home.mkdir()

    @contextmanager
    def open_executor(question: Question, home: Path) -> Iterator[SimulatedExecutor]:
        repository = Repository.open(Path(question.repo), home=home)

        def script(job: ProbeJob) -> SimulatedRun:
            level = level_of(repository, job.spec.variant.tree)
            return SimulatedRun(fingerprint_of(level, seed_idx=job.spec.seed_idx))

        yield SimulatedExecutor(script, slots=2)

    monkeypatch.setattr(driving, "open_executor", open_executor)
    monkeypatch.setenv("BISECT_TRAIN_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(story.repo.path)
    before = signal.getsignal(signal.SIGTERM)
    with start_receiver() as hook:
        yield Stage(story, home, hook, monkeypatch, capsys)
    signal.signal(signal.SIGTERM, before)


def test_seven_nights_are_told_once_each_though_two_are_killed(stage: Stage) -> None:
    commits = stage.story.commits
    assert stage.night(1)["last_good"] == commits["start"]
    assert stage.night(2)["last_good"] == commits["docs"]
    stage.kill(3, at_probe=5)
    regression = stage.night(3)
    assert (regression["exit_status"], regression["last_good"]) == (5, commits["docs"])
    assert stage.told() == [("open", "regression")]
    assert stage.night(4)["exit_status"] == 5 and stage.night(4)["is_repeat"]
    assert len(stage.hook.taken) == 1, "an open finding is not told again"
    assert stage.night(5)["exit_status"] == 0
    assert stage.told()[1:] == [("closed", "regression")]
    assert stage.night(6)["exit_status"] == 5
    stage.call("nightly", "expect", commits["meant"], "--reason", "a smaller model")
    meant = stage.night(6)
    assert (meant["exit_status"], meant["last_good"]) == (0, commits["creep1"])
    assert stage.told()[2:] == [("open", "regression"), ("intended", "regression")]
    stage.kill(7, at_probe=1)
    assert stage.night(7)["exit_status"] == 5
    assert stage.told()[4:] == [("open", "drift")]
    opened, closed, blamed, intended, drift = (request.data for request in stage.hook.taken)
    assert [item["id"] for item in opened["culprits"]] == [commits["worse"]]
    assert (closed["id"], closed["revision"], closed["fixed_by"]) == (opened["id"], 2, commits["mended"])
    assert [item["id"] for item in intended["culprits"]] == [commits["meant"]] and "a smaller model" in intended["summary"]
    assert (intended["id"], intended["revision"]) == (blamed["id"], 2)
    assert (drift["good"], drift["bad"], drift["culprits"]) == (commits["meant"], commits["creep3"], [])
    assert any(text.startswith("It shows on other seeds, too") for text in drift["details"])
    assert len({request.headers["idempotency-key"] for request in stage.hook.taken}) == 5
    events = _events(stage)
    begun = [event["commit"] for event in events if event["kind"] == "begun"]
    assert len(begun) == 8 and begun.count(meant["commit"]) == 2, "a night that was killed is gone on with, not begun anew"


def test_history_and_status_show_the_nights_with_metric_and_spread(stage: Stage) -> None:
    for number in (1, 2, 3):
        stage.night(number)
    status, out, _ = stage.call("nightly", "history", "--json", str(stage.home / "history.json"))
    assert status == 0 and "loss 2.26" in out and "(sd 0.0" in out and "runs)" in out
    assert f"open: loss is worse on main since {stage.story.commits['worse'][:8]}" in out
    data = json.loads((stage.home / "history.json").read_text())
    assert [night["exit_status"] for night in data["nights"]] == [0, 0, 5]
    assert data["nights"][2]["level"]["num"] >= 3 and data["told"][0]["place"].startswith("webhook")
    status, out, _ = stage.call("nightly", "status", "--json", str(stage.home / "status.json"))
    assert status == 0 and "last good" in out and "open" in out
    watch = json.loads((stage.home / "status.json").read_text())["watches"][0]
    assert (watch["branch"], watch["last_good"], len(watch["open"])) == (BRANCH, stage.story.commits["docs"], 1)


def test_bisection_of_a_killed_night_is_gone_on_with_and_no_probe_runs_twice(stage: Stage) -> None:
    stage.night(1)
    stage.kill(3, at_probe=6)
    stage.night(3)
    store = open_store(stage.home)
    try:
        nightly = [item for item in store.list() if item.question["kind"] == "nightly"]
        assert [item.status for item in nightly] == ["finished"]
        finished = [event.data["key"] for event in store.events(nightly[0].id) if event.kind == "probe_finished"]
        started = [event.data["key"] for event in store.events(nightly[0].id) if event.kind == "probe_started"]
    finally:
        store.close()
    assert len(finished) == len(set(finished)) and len(started) - len(finished) <= 2, "those that were running when it died"


def test_second_one_at_the_same_time_says_so(stage: Stage) -> None:
    stage.night(1)
    store = open_store(stage.home)
    try:
        with store.nightly().lock("trainer-main"):
            status, _, err = stage.call("nightly", *stage.options, "--", "python", "train.py")
    finally:
        store.close()
    assert status == 2 and "trainer-main is being watched by process" in err


def test_change_that_was_called_intended_before_it_is_found_is_labelled_and_nobody_is_told(stage: Stage) -> None:
    stage.night(5)
    data = stage.night(6, "--expect", stage.story.commits["meant"])
    assert (data["exit_status"], data["last_good"]) == (0, stage.story.commits["creep1"])
    assert [finding["state"] for finding in data["findings"]] == ["intended"] and stage.told() == []


@pytest.mark.parametrize("is_mended", [True, False])
def test_regression_behind_an_intended_change_is_closed_where_it_was_fixed_and_only_there(
    stage: Stage, is_mended: bool
) -> None:
    stage.night(2)
    last_good = stage.night(3)["last_good"]
    repo, before = stage.story.repo, stage.story.commits["tidy"][:8]
    repo.git("checkout", "-q", "--detach", stage.story.commits["worse"])
    meant = repo.commit({part_path("meant"): part_text(0.5)}, message="a smaller model")
    newest = repo.commit({part_path("worse"): part_text(0.0)} if is_mended else {"notes.md": "x\n"}, message="the next")
    repo.git("branch", "-f", BRANCH, newest)
    assert stage.call("nightly", "expect", meant, "--reason", "a smaller model")[0] == 0
    status, _, err = stage.call("nightly", *stage.options, "--", "python", "train.py")
    data = json.loads((stage.home / "night.json").read_text())
    assert (status, data["last_good"]) == ((0, newest) if is_mended else (5, last_good)), err
    told = [request.data for request in stage.hook.taken if request.data["culprits"][0]["id"] != meant]
    if is_mended:
        assert (told[-1]["state"], told[-1]["fixed_by"]) == ("closed", newest)
        assert f"{before} with the intended change {meant[:8]} on top is no better" in told[-1]["summary"]
    else:
        assert [item["state"] for item in told] == ["open"]
        assert f"Still worse than before it ({before}) with {meant[:8]} on top" in data["summary"]


def test_fetched_branch_is_the_remote_one_and_nothing_of_the_user_moves(stage: Stage, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    stage.story.repo.git("clone", "-q", "-b", BRANCH, str(stage.story.repo.path), str(clone))
    in_clone = ("-C", str(clone))
    before = stage.story.repo.git(*in_clone, "for-each-ref", "refs/heads")
    newest = stage.story.go_to(3)
    stage.monkeypatch.chdir(clone)
    good = stage.story.commits["docs"]
    status, _, err = stage.call("nightly", *stage.options, "--fetch", "--good", good, "--", "python", "train.py")
    assert status == 5, err
    assert json.loads((stage.home / "night.json").read_text())["commit"] == newest
    assert stage.story.repo.git(*in_clone, "rev-parse", f"refs/remotes/origin/{BRANCH}") == newest
    assert stage.story.repo.git(*in_clone, "for-each-ref", "refs/heads") == before
    assert stage.story.repo.git(*in_clone, "status", "--porcelain") == ""


def test_branch_that_was_pushed_anew_is_not_good_unseen(stage: Stage) -> None:
    stage.night(1)
    last_good = stage.night(2)["last_good"]
    repo = stage.story.repo
    stage.story.go_to(3)
    anew = repo.git("commit-tree", "HEAD^{tree}", "-m", "all history in one commit")
    repo.git("update-ref", f"refs/heads/{BRANCH}", anew)
    run = ("nightly", "--branch", BRANCH, "--min-effect", str(MIN_EFFECT), "--steps", "4", "--quiet")
    for more, said in [((), "none of the good commits"), (("--good", last_good), "does not lie behind main")]:
        status, _, err = stage.call(*run, *more, "--", "python", "train.py")
        assert status == 2 and said in err and anew[:12] in err
    status, out, _ = stage.call("nightly", "status")
    assert status == 0 and last_good[:12] in out and anew[:12] not in out.split("last good")[1].splitlines()[0]
    assert stage.call(*run, "--good", anew, "--", "python", "train.py")[0] == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--branch", "nothing"), "unknown revision 'nothing'"),
        (("--branch", "-x"), "is not a revision"),
        (("--branch", "main", "--good", "nothing"), "unknown revision 'nothing'"),
        (("--branch", "main", "--pinned", "baseline:nothing"), "no baseline 'nothing'"),
        (("--branch", "main", "--name", "../x"), "no name of a watch"),
        (("--branch", "main", "--fetch"), "no remote 'origin'"),
        (("--branch", "main", "--link", "page=ftp://x"), "is no link"),
        (("--branch", "main", "--expect", "nothing"), "unknown revision 'nothing'"),
    ],
)
def test_mistakes_are_told_before_anything_runs(stage: Stage, args: tuple[str, ...], said: str) -> None:
    status, _, err = stage.call("nightly", *args, "--steps", "4", "--", "python", "train.py")
    assert status == 2 and said in err


def test_name_of_another_branch_is_refused_and_watches_are_told_apart(stage: Stage) -> None:
    stage.night(1)
    run = ("--steps", "4", "--quiet", "--", "python", "train.py")
    status, _, err = stage.call("nightly", "--branch", "all", "--name", "trainer-main", *run)
    assert status == 2 and "is of branch main" in err
    assert stage.call("nightly", "--branch", "all", *run)[0] == 0
    status, _, err = stage.call("nightly", "history")
    assert status == 2 and "trainer-all, trainer-main" in err
    assert stage.call("nightly", "history", "trainer-all")[0] == 0


def _events(stage: Stage) -> list[dict[str, Any]]:
    store = open_store(stage.home)
    try:
        log = store.nightly()
        return [{"kind": event.kind, **event.data} for event in log.events("trainer-main")]
    finally:
        store.close()
