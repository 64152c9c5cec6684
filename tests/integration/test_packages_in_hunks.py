"""Neighbouring lines of a requirements file in a commit: a change per package, and what any set of them gives."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.changes.hunk_states import HunkStates
from bisect_train.changes.space import build_space
from bisect_train.core.changes import make_point
from bisect_train.core.probe import EnvironmentSettings
from bisect_train.core.question import Inside
from tests.support.git_repos import UserRepo, files_of, question_of

OLD = "# pinned\nabc==1\ntorch==2.0  # why\nnumpy[x]==1.0\nold==1\nkept==1\n\nzeta==1\n"
NEW = "# pinned\nabc==1\ntorch==2.1\nnumpy[x]==2.0\nnew==1\nnewer==1\nkept==1\n\nzeta==2"


def look_into(tmp_path: Path, old: str, new: str, *, path: str = "requirements.txt") -> tuple[UserRepo, HunkStates]:
    user = UserRepo.create(tmp_path / "repo")
    user.commit({path: old, "train.py": "x = 1\n"})
    user.commit({path: new})
    return user, HunkStates(user.open(tmp_path / "home").git, parent=user.git("rev-parse", "HEAD~1"), commit=user.head)


def lines_of(user: UserRepo, tmp_path: Path, states: HunkStates, chosen: tuple[int, ...], path: str) -> list[str]:
    tree = states.state_of(make_point(0, plus=chosen))[1]
    return files_of(user.open(tmp_path / "home").mirror, tree)[path].decode().splitlines()


def test_each_package_of_neighbouring_lines_is_a_change(tmp_path: Path) -> None:
    _, states = look_into(tmp_path, OLD, NEW)
    ids = [change.id.partition(":")[2] for change in states.changes]
    assert ids[:5] == ["torch", "numpy", "new", "newer", "old"] and len(ids) == 6
    titles = {change.id: change.title for change in states.changes}
    assert titles["requirements.txt:torch"] == "requirements.txt:torch: torch==2.0 # why -> torch==2.1 (+1 -1)"
    assert titles["requirements.txt:new"] == "requirements.txt:new: new==1 (+1 -0)"
    assert titles["requirements.txt:old"] == "requirements.txt:old: without old==1 (+0 -1)"


def test_any_set_of_packages_gives_the_lines_of_just_these(tmp_path: Path) -> None:
    user, states = look_into(tmp_path, OLD, NEW)
    ids = [change.id.partition(":")[2] for change in states.changes]
    ways = {
        "torch": ("torch==2.0  # why", "torch==2.1"),
        "numpy": ("numpy[x]==1.0", "numpy[x]==2.0"),
        "zeta": ("zeta==1", "zeta==2"),
    }
    for num in range(len(ids) + 1):
        for chosen in itertools.combinations(range(len(ids)), num):
            names = {ids[idx] if not ids[idx][0].isdigit() else "zeta" for idx in chosen}
            middle = [name for name in ("new", "newer") if name in names] + ([] if "old" in names else ["old"])
            wanted = ["# pinned", "abc==1", ways["torch"]["torch" in names], ways["numpy"]["numpy" in names]]
            wanted += [*(f"{name}==1" for name in middle), "kept==1", "", ways["zeta"]["zeta" in names]]
            assert lines_of(user, tmp_path, states, chosen, "requirements.txt") == wanted


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("a==1\nb==1\n", "a==2\nb==2\n", "notes.txt"),
        ("a==1 --hash=sha256:x\nb==1\n", "a==2 --hash=sha256:y\nb==2\n", "requirements.txt"),
        ("-r base.txt\nb==1\n", "-r other.txt\nb==2\n", "requirements.txt"),
        ("a==1; python_version<'3.9'\na==2; python_version>='3.9'\nb==1\n", "a==3\nb==2\n", "requirements.txt"),
        ("a==1\nb==1\nmid==1\nc==1\n", "b==2\nc==2\nmid==1\na==2\n", "requirements.txt"),
        ("a==1\n", "a==2\n", "requirements.txt"),
    ],
)
def test_hunk_that_is_no_plain_list_of_packages_stays_whole(tmp_path: Path, old: str, new: str, path: str) -> None:
    _, states = look_into(tmp_path, old, new, path=path)
    assert all(change.id.partition(":")[2].partition(",")[0].isdigit() for change in states.changes), states.changes


@pytest.mark.parametrize("path", ["requirements/dev.txt", "requirements-gpu.txt", "a/constraints.txt", "dev_requirements.in"])
def test_lists_are_known_by_their_usual_names(tmp_path: Path, path: str) -> None:
    _, states = look_into(tmp_path, "a==1\nb==1\n", "a==2\nb==2\n", path=path)
    assert [change.id for change in states.changes] == [f"{path}:a", f"{path}:b"]


def test_environment_of_a_state_follows_its_packages(tmp_path: Path) -> None:
    user, _ = look_into(tmp_path, "a==1\nb==1\n", "a==2\nb==2\n")
    commit = user.head
    question = question_of(user.git("rev-parse", "HEAD~1"), commit)
    settings = replace(question.settings, environment=EnvironmentSettings(files=("requirements.txt",)))
    space = build_space(user.open(tmp_path / "home"), replace(question, settings=settings, inside=Inside(commit)))
    laid = {chosen: space.variant(make_point(0, plus=chosen)).packages for chosen in ((), (0,), (1,), (0, 1))}
    assert laid == {(): ("a==1", "b==1"), (0,): ("a==2", "b==1"), (1,): ("a==1", "b==2"), (0, 1): ("a==2", "b==2")}


def test_patch_of_one_package_applies_to_the_parent(tmp_path: Path) -> None:
    user, states = look_into(tmp_path, OLD, NEW)
    idx = next(idx for idx, change in enumerate(states.changes) if change.id.endswith(":old"))
    (tmp_path / "one.patch").write_text(states.patch_of([idx]))
    user.git("checkout", "-q", "HEAD~1")
    user.git("apply", str(tmp_path / "one.patch"))
    assert (user.path / "requirements.txt").read_text() == OLD.replace("old==1\n", "")
