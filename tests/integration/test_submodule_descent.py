"""Into a submodule: a commit that moves it is named, and bisections of their own find which of its commits did it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bisect_train.changes.space import build_space
from bisect_train.cli import driving
from bisect_train.cli.main import group
from bisect_train.core.changes import make_point
from bisect_train.core.errors import InterruptedByUser
from bisect_train.core.probe import ProbeJob
from bisect_train.core.question import Question
from bisect_train.store.home import open_store
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun
from tests.support.git_repos import UserRepo, files_of, files_on_worker, git, state_of
from tests.support.simulated_bisection import fingerprint_of

PLACE = "libs/opt"


@dataclass
class SubmoduleLab:
    """A user's repository with the submodule `libs/opt`, and the command line with simulated runs.

    Attributes:
        is_bad: whether the files of the submodules (by their paths in the checkout) train worse.
        jobs: what was run.
        stop_after: so many runs are done before Ctrl-C.
        unpacked: ids of the packs that the worker has.
    """

    user: UserRepo
    library: UserRepo
    home: Path
    monkeypatch: pytest.MonkeyPatch
    is_bad: Callable[[dict[str, str]], bool] = lambda files: False
    jobs: list[ProbeJob] = field(default_factory=list)
    stop_after: int = 10**6
    unpacked: set[str] = field(default_factory=set)

    @staticmethod
    def build(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SubmoduleLab:
        """Write the library with one commit and the user's repository that has it as a submodule."""
        library = UserRepo.create(folder / "library")
        library.commit({"step.py": "pass\n"}, message="begin")
        user = UserRepo.create(folder / "user")
        user.git("submodule", "-q", "add", "--name", "the opt", f"file://{library.path}", PLACE)
        user.commit({"train.py": "pass\n"}, message="good")
        home = folder / "home"
        home.mkdir()
        monkeypatch.setenv("BISECT_TRAIN_HOME", str(home))
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.chdir(user.path)
        lab = SubmoduleLab(user, library, home, monkeypatch)

        @contextmanager
        def open_simulated(*_: Any) -> Any:
            executor = SimulatedExecutor(lab.run_of, slots=1)
            yield executor
            executor.close()

        monkeypatch.setattr(driving, "open_executor", open_simulated)
        return lab

    def bump(self, message: str, files: dict[str, str | bytes | None] | None = None, *, to: str = "origin/main") -> str:
        """Commit the submodule at another commit; return that commit of the user's."""
        git(self.user.path / PLACE, "fetch", "-q")
        git(self.user.path / PLACE, "checkout", "-q", "--detach", to)
        git(self.user.path / PLACE, "submodule", "update", "-q", "--init", "--recursive")
        return self.user.commit(files, message=message)

    def files_of(self, job: ProbeJob) -> dict[str, str]:
        """Return the texts of the submodules by path in the checkout, as a worker with nothing but the packs has them."""
        worker = self.home / "worker.git"
        if not worker.exists():
            git(self.home, "init", "-q", "--bare", str(worker))
        for pack in job.packs:
            if pack.id not in self.unpacked:
                git(worker, "index-pack", "--stdin", stdin=pack.data)
                self.unpacked.add(pack.id)
        trees = {subtree.path: subtree.tree for subtree in job.spec.variant.subtrees}
        return {f"{path}/{name}": text.decode() for path in trees for name, text in files_of(worker, trees[path]).items()}

    def run_of(self, job: ProbeJob) -> SimulatedRun:
        """The script."""
        self.jobs.append(job)
        if len(self.jobs) > self.stop_after:
            raise KeyboardInterrupt
        level = 2.0 if self.is_bad(self.files_of(job)) else 1.0
        return SimulatedRun(fingerprint_of(level, seed_idx=job.spec.seed_idx))

    def command(self, *args: str) -> str:
        """Run the command line and return what it printed, on one line."""
        result = CliRunner().invoke(group, args, standalone_mode=False, catch_exceptions=False)
        return " ".join(result.output.split())

    def run(self, *options: str) -> dict[str, Any]:
        """Bisect from the oldest commit to main and return report.json."""
        good = self.user.git("rev-list", "--max-parents=0", "main")
        self.command("run", "--good", good, "--out", str(self.home / "out"), *options, "--", "python", "train.py")
        report: dict[str, Any] = json.loads((self.home / "out" / "report.json").read_text())
        return report


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SubmoduleLab:
    return SubmoduleLab.build(tmp_path, monkeypatch)


def inside(report: dict[str, Any]) -> list[tuple[str, str]]:
    (culprit,) = report["culprits"]
    return [(part["kind"], part["id"]) for part in culprit["inside"]]


def write_ten(lab: SubmoduleLab, *, harmful: int = 6) -> tuple[str, str]:
    """Write a history of 12 commits, one of which moves the submodule by ten; return that one and the harmful one."""
    names = [lab.library.commit({f"part{idx}.py": "x\n"}, message=f"part {idx}") for idx in range(10)]
    for idx in range(5):
        lab.user.commit({f"note{idx}": "x"}, message=f"note {idx}")
    bump = lab.bump("update opt")
    for idx in range(5, 10):
        lab.user.commit({f"note{idx}": "x"}, message=f"note {idx}")
    lab.is_bad = lambda files: f"{PLACE}/part{harmful}.py" in files
    return bump, names[harmful]


def test_commit_of_the_submodule_is_named_inside_the_commit_that_moves_it(lab: SubmoduleLab) -> None:
    bump, harmful = write_ten(lab)
    low, high = (lab.user.git("rev-parse", f"{rev}:{PLACE}") for rev in (f"{bump}^", bump))
    before = state_of(lab.user.path)
    report = lab.run()
    assert report["status"] == "isolated" and report["culprits"][0]["changes"][0]["id"] == bump
    assert inside(report) == [("commit", harmful), ("file", f"{PLACE}/part6.py")]
    assert report["culprits"][0]["inside"][0]["title"] == f"{PLACE}: part 6"
    told = (
        f'inside it: the submodule {PLACE}: {low[:8]} -> {high[:8]}, its commit {harmful[:8]} "part 6" (proved by fresh runs)'
    )
    assert told in report["summary"] and told in lab.command("report")
    assert state_of(lab.user.path) == before, "the checkout and the submodule's are only read"
    store = open_store(lab.home)
    part, whole = (stored.id for stored in store.list())
    assert store.load(part).title == f"inside submodule {PLACE} of {whole}"
    assert store.load(part).answer is not None and f"inside submodule {PLACE}" in lab.command("list")
    store.close()
    assert "git submodule update --init --recursive" in report["reproduce"], "a clone has no submodules"


def test_states_of_the_part_travel_to_a_worker_as_packs(lab: SubmoduleLab, tmp_path: Path) -> None:
    """Synthetic commits of the submodule, too: the bad end without the culprit is one."""
    write_ten(lab)
    lab.run()
    store = open_store(lab.home)
    stored = store.list()[0]
    store.close()
    question = Question.of_json(stored.question)
    space = build_space(lab.user.open(lab.home), question)
    assert len(space.changes) == space.num_ordered == 10
    variant = space.variant(make_point(10, minus=(6,)))
    (subtree,) = variant.subtrees
    found = files_on_worker(space.packs(variant), subtree.tree, tmp_path / "worker")
    assert "part5.py" in found and "part9.py" in found and "part6.py" not in found
    assert space.variant(make_point(10)).tree == lab.user.git("rev-parse", f"{question.range.bad}^{{tree}}")
    commands = space.reproduce(make_point(4))
    assert commands[0] == f"git checkout --detach {question.range.bad}"
    assert commands[-1] == f"git -C {PLACE} checkout --detach {space.changes[3].id}"
    assert "FETCH_HEAD" in space.reproduce(make_point(10, minus=(6,)))[-1]


@pytest.mark.parametrize("stop", [0, 4])
def test_interrupted_inside_the_submodule_it_is_resumed_to_the_same_answer(lab: SubmoduleLab, stop: int) -> None:
    bump, harmful = write_ten(lab)
    lab.run("--no-descend")
    lab.stop_after = len(lab.jobs) * 2 + stop  # the same runs again, then so many inside
    with pytest.raises(InterruptedByUser):
        lab.run("--no-reuse")
    store = open_store(lab.home)
    assert sum(stored.question["part_of"] != "" for stored in store.list()) == 1
    store.close()
    lab.stop_after = 10**6
    finished = {job.id for job in lab.jobs[:-1]}
    ran = len(lab.jobs)
    out = lab.home / "again.json"
    lab.command("resume", "--json", str(out))
    report = json.loads(out.read_text())
    assert report["culprits"][0]["changes"][0]["id"] == bump and inside(report)[0] == ("commit", harmful)
    assert finished and not finished & {job.id for job in lab.jobs[ran:]}, "no finished probe is run again"


def test_commit_with_other_files_opens_into_its_pieces_then_into_the_submodule(lab: SubmoduleLab) -> None:
    names = [lab.library.commit({f"part{idx}.py": "x\n"}) for idx in range(6)]
    lab.user.commit({"a": "1"})
    bump = lab.bump("update opt and the loop", {"train.py": "call()\n"})
    lab.user.commit({"a": "2"})
    lab.is_bad = lambda files: f"{PLACE}/part3.py" in files
    report = lab.run()
    assert report["culprits"][0]["changes"][0]["id"] == bump
    assert ("hunk", PLACE) in inside(report)
    assert "inside it: hunk libs/opt (submodule" in report["summary"]
    assert f"inside it: the submodule {PLACE}: " in report["summary"] and names[3][:8] in report["summary"]


def test_commit_of_the_submodule_opens_into_its_hunks(lab: SubmoduleLab) -> None:
    def body(**changed: str) -> str:
        return "".join(f"{name} = {changed.get(name, '1')}\n" + f"print('{name}')\n" * 4 for name in "abcdefghij")

    lab.library.commit({"opt.py": body()})
    squash = lab.library.commit({"opt.py": body(**dict.fromkeys("abcefgi", "2"))}, message="squash")
    lab.library.commit({"note": "x"})
    lab.user.commit({"a": "1"})
    lab.bump("update opt")
    lab.user.commit({"a": "2"})
    lab.is_bad = lambda files: "f = 2" in files.get(f"{PLACE}/opt.py", "")
    report = lab.run()
    assert inside(report)[:2] == [("commit", squash), ("hunk", f"{PLACE}/opt.py:26,1")]
    assert f"inside it: hunk {PLACE}/opt.py:26,1" in report["summary"]
    patch = (lab.home / "out" / "culprit.patch").read_text()
    git(lab.user.path / PLACE, "checkout", "-q", f"{squash}^")
    (lab.home / "p.patch").write_text(patch)
    lab.user.git("apply", str(lab.home / "p.patch"))
    assert "f = 2" in (lab.user.path / PLACE / "opt.py").read_text()


def test_merge_in_the_submodule_opens_into_its_branch(lab: SubmoduleLab) -> None:
    lab.library.commit({"m1": "x"})
    lab.library.git("switch", "-q", "-c", "side")
    names = [lab.library.commit({f"b{idx}": "x"}, message=f"side {idx}") for idx in range(4)]
    lab.library.git("switch", "-q", "main")
    lab.library.commit({"m2": "x"})
    merge = lab.library.merge("side", message="merge side")
    lab.library.commit({"m3": "x"})
    lab.bump("update opt")
    lab.user.commit({"a": "2"})
    lab.is_bad = lambda files: f"{PLACE}/b2" in files
    report = lab.run()
    assert [item for item in inside(report) if item[0] == "commit"] == [("commit", merge), ("commit", names[2])]
    assert f'inside it: commit {names[2][:8]} "side 2" (proved' in report["summary"]


def test_submodule_within_a_submodule_is_looked_into_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = SubmoduleLab.build(tmp_path, monkeypatch)
    core = UserRepo.create(tmp_path / "core")
    core.commit({"core.py": "pass\n"})
    lab.library.git("submodule", "-q", "add", "--name", "core", f"file://{core.path}", "deep/core")
    lab.library.commit(message="with core")
    lab.bump("take core")
    good = lab.user.head
    names = [core.commit({f"c{idx}.py": "x\n"}, message=f"core {idx}") for idx in range(5)]
    lab.library.commit({"note1": "x"})
    git(lab.library.path / "deep" / "core", "pull", "-q")
    middle = lab.library.commit(message="update core")
    lab.library.commit({"note2": "x"})
    lab.user.commit({"a": "1"})
    bump = lab.bump("update opt")
    lab.user.commit({"a": "2"})
    lab.is_bad = lambda files: f"{PLACE}/deep/core/c3.py" in files
    out = lab.home / "out.json"
    lab.command("run", "--good", good, "--json", str(out), "--", "python", "train.py")
    report = json.loads(out.read_text())
    assert report["culprits"][0]["changes"][0]["id"] == bump
    assert [item for item in inside(report) if item[0] == "commit"] == [("commit", middle), ("commit", names[3])]
    said = report["summary"]
    assert f"the submodule {PLACE}: " in said and f'its commit {middle[:8]} "update core"' in said
    assert f"the submodule {PLACE}/deep/core: " in said and f'its commit {names[3][:8]} "core 3"' in said
    assert report["culprits"][0]["inside"][1]["title"] == f"{PLACE}/deep/core: core 3"


def test_submodule_that_goes_back_or_was_rebased_is_said_so(lab: SubmoduleLab) -> None:
    first = lab.library.head
    lab.library.commit({"new.py": "x\n"})
    lab.bump("good opt")
    good = lab.user.head
    lab.user.commit({"a": "1"})
    lab.bump("back", to=first)
    lab.user.commit({"a": "2"})
    lab.is_bad = lambda files: f"{PLACE}/new.py" not in files
    lab.command("run", "--good", good, "--", "python", "train.py")
    told = lab.command("report")
    assert "was not looked at: it goes back" in told and f"What is inside the submodule {PLACE}: " in told

    lab.library.git("checkout", "-q", "--orphan", "other")
    other = lab.library.commit({"step.py": "other\n"})
    good = lab.user.head
    lab.bump("rebased", to="origin/other")
    lab.user.commit({"a": "3"})
    lab.is_bad = lambda files: "other" in files.get(f"{PLACE}/step.py", "")
    lab.command("run", "--good", good, "--", "python", "train.py")
    told = lab.command("report")
    assert f"{other[:8]} is not built on {first[:8]} (rebased, or another branch)" in told
    store = open_store(lab.home)
    assert not any(stored.question["part_of"] for stored in store.list())
    store.close()


def test_one_commit_between_needs_no_search(lab: SubmoduleLab) -> None:
    only = lab.library.commit({"part.py": "x\n"}, message="the only one")
    lab.user.commit({"a": "1"})
    lab.bump("update opt")
    lab.user.commit({"a": "2"})
    lab.is_bad = lambda files: f"{PLACE}/part.py" in files
    report = lab.run()
    assert inside(report) == [("file", PLACE)]
    assert f'was not looked at: its one commit is {only[:8]} "the only one"' in lab.command("report")


def test_one_commit_of_many_hunks_is_split_at_once(lab: SubmoduleLab) -> None:
    names = "abcdef"
    lab.library.commit({"opt.py": "".join(f"{name} = 1\n" + "pass\n" * 8 for name in names)})
    lab.bump("begin")
    good = lab.user.head
    lab.user.commit({"a": "1"})
    lab.library.commit({"opt.py": "".join(f"{name} = 2\n" + "pass\n" * 8 for name in names)})
    lab.bump("update opt")
    lab.is_bad = lambda files: "d = 2" in files[f"{PLACE}/opt.py"]
    out = lab.home / "out.json"
    lab.command("run", "--good", good, "--json", str(out), "--", "python", "train.py")
    assert inside(json.loads(out.read_text()))[0] == ("hunk", f"{PLACE}/opt.py:28,1")
    store = open_store(lab.home)
    assert [stored.question["inside"]["submodule"] for stored in store.list()] == [PLACE, ""], "no search among one commit"
    store.close()


def test_shallow_submodule_is_opened_with_the_clone_that_is_named(lab: SubmoduleLab, tmp_path: Path) -> None:
    bump, harmful = write_ten(lab)
    modules = lab.user.path / ".git" / "modules" / "the opt"
    high = lab.library.head
    (modules / "shallow").write_text(f"{high}\n")
    report = lab.run()
    assert report["culprits"][0]["changes"][0]["id"] == bump and inside(report) == [("file", PLACE)]
    told = lab.command("report")
    assert "cut off in a shallow clone" in told and f"--package-repo {PLACE}=DIR" in told
    report = lab.run("--package-repo", f"{PLACE}={lab.library.path}")
    assert inside(report)[0] == ("commit", harmful)


def test_submodule_without_its_working_tree_is_read(lab: SubmoduleLab) -> None:
    bump, harmful = write_ten(lab)
    lab.user.git("submodule", "-q", "deinit", "-f", PLACE)
    (lab.user.path / PLACE).rmdir()
    report = lab.run()
    assert report["culprits"][0]["changes"][0]["id"] == bump and inside(report)[0] == ("commit", harmful)
