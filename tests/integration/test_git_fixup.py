"""Fixups: patches laid over the states that take them, in our mirror only; and what a search makes of them."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.changes import fixup as fixup_module
from bisect_train.changes import plumbing
from bisect_train.changes.fixup import read_fixup, refuse_unused
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.core.changes import GOOD_END, Point, make_point, point_of_text
from bisect_train.core.errors import InputError
from bisect_train.core.fingerprint import Ending, EndingKind
from bisect_train.core.probe import ProbeJob
from bisect_train.core.question import Fixup, Question
from bisect_train.report.byfixup import warn_of_fixups
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SimulatedRun
from tests.support.git_repos import UserRepo, files_of, files_on_worker, git, question_of, state_of
from tests.support.simulated_bisection import Lab, drive, fingerprint_of

HEAD_LINES = "".join(f"line {idx}\n" for idx in range(6))
FIXED = HEAD_LINES + "import os\n" + HEAD_LINES
BROKEN = HEAD_LINES + "import oss\n" + HEAD_LINES


def patch_of(user: UserRepo, files: dict[str, str | bytes | None], *options: str) -> Fixup:
    """Return what `git diff` shows for a change of the working tree, which is undone."""
    for name, text in files.items():
        if text is None:
            (user.path / name).unlink()
        else:
            user.write(name, text)
    user.git("add", "-A")
    data = subprocess.check_output(["git", "diff", "--cached", *options], cwd=user.path)
    user.git("reset", "-q", "--hard")
    return Fixup("fix.patch", data.decode("utf-8", "surrogateescape"))


def space_of(user: UserRepo, home: Path, goods: str, *fixups: Fixup, **options: object) -> ChangeSpace:
    return build_space(user.open(home), replace(question_of(goods, user.head, **options), fixups=fixups))


def with_base(user: UserRepo, home: Path, fixup: Fixup) -> Fixup:
    """Return a patch as it is read from a file: with the files that it was made from."""
    path = home.with_name("read.patch")
    path.write_bytes(fixup.text.encode("utf-8", "surrogateescape"))
    return replace(read_fixup(path, user.open(home).git), path=fixup.path)


by_context_and_merged = pytest.mark.parametrize("has_base", [False, True], ids=["by context", "merged"])


def files_at(space: ChangeSpace, point: Point, folder: Path) -> dict[str, bytes]:
    """Return the files of a state as a worker gets them."""
    variant = space.variant(point)
    return files_on_worker(space.packs(variant), variant.tree, folder)


@pytest.fixture
def user(tmp_path: Path) -> UserRepo:
    return UserRepo.create(tmp_path / "repo")


def stretch(user: UserRepo) -> tuple[str, Fixup]:
    """Commit good, good, broken, broken, fixed, fixed; return the first commit and the patch that repairs."""
    good = user.commit({"train.py": FIXED})
    user.commit({"a.txt": "1\n"})
    user.commit({"train.py": BROKEN})
    fixup = patch_of(user, {"train.py": FIXED})
    user.commit({"train.py": "# header\n" + BROKEN, "b.txt": "3\n"})
    user.commit({"train.py": "# header\n" + FIXED})
    user.commit({"a.txt": "5\n"})
    return good, fixup


@by_context_and_merged
def test_fixup_is_laid_over_the_broken_stretch_only(user: UserRepo, tmp_path: Path, has_base: bool) -> None:
    good, fixup = stretch(user)
    fixup = with_base(user, tmp_path / "home", fixup) if has_base else fixup
    before = state_of(user.path)
    space = space_of(user, tmp_path / "home", good, fixup)
    plain = space_of(user, tmp_path / "home", good)
    points = [make_point(prefix) for prefix in range(6)]
    assert [space.fixups_at(point) for point in points] == [(False,), (False,), (True,), (True,), (False,), (False,)]
    same = [space.variant(point) == plain.variant(point) for point in points]
    assert same == [True, True, False, False, True, True]
    assert files_at(space, points[2], tmp_path / "two") == {"train.py": FIXED.encode(), "a.txt": b"1\n"}
    three = files_at(space, points[3], tmp_path / "three")
    assert three == {"train.py": b"# header\n" + FIXED.encode(), "a.txt": b"1\n", "b.txt": b"3\n"}
    assert space.variant(points[3]).id != plain.variant(points[3]).id
    assert space.variant(points[2]).commit != plain.variant(points[2]).commit
    [use] = space.survey_fixups()
    assert (use.num_applied, use.num_tried, use.num_states, use.reason) == (2, 6, 6, "it is in there already")
    assert state_of(user.path) == before


@by_context_and_merged
def test_fixup_is_laid_over_sets_that_nobody_committed(user: UserRepo, tmp_path: Path, has_base: bool) -> None:
    good, fixup = stretch(user)
    fixup = with_base(user, tmp_path / "home", fixup) if has_base else fixup
    space = space_of(user, tmp_path / "home", good, fixup)
    without, added = make_point(3, minus=(0,)), make_point(0, plus=(1,))
    assert space.fixups_at(without) == space.fixups_at(added) == (True,)
    assert files_at(space, without, tmp_path / "w") == {"train.py": b"# header\n" + FIXED.encode(), "b.txt": b"3\n"}
    assert files_at(space, added, tmp_path / "added") == {"train.py": FIXED.encode()}


def test_fixup_at_half_merged_branches_and_at_a_good_end_aside(user: UserRepo, tmp_path: Path) -> None:
    base = user.commit({"train.py": BROKEN, "a.txt": "0\n"})
    fixup = patch_of(user, {"train.py": FIXED})
    user.git("checkout", "-q", "-b", "good")
    good = user.commit({"b.txt": "good\n"})
    user.git("checkout", "-q", "-b", "side", base)
    user.commit({"side.txt": "1\n"})
    user.git("checkout", "-q", "main")
    user.commit({"a.txt": "1\n"})
    user.merge("side")
    space = space_of(user, tmp_path / "home", good, fixup, first_parent=False)
    points = [GOOD_END, *(make_point(prefix) for prefix in range(len(space.changes) + 1))]
    for number, point in enumerate(points):
        assert files_at(space, point, tmp_path / f"w{number}")["train.py"] == FIXED.encode()
    assert "b.txt" in files_at(space, GOOD_END, tmp_path / "good")
    [use] = space.survey_fixups()
    assert (use.num_applied, use.num_states) == (5, 5)


@by_context_and_merged
def test_fixup_of_several_files_is_applied_wholly_or_not_at_all(user: UserRepo, tmp_path: Path, has_base: bool) -> None:
    good = user.commit({"train.py": BROKEN, "b.py": "one\n"})
    user.commit({"b.py": "two\n"})
    fixup = patch_of(user, {"train.py": FIXED, "b.py": "three\n"})
    fixup = with_base(user, tmp_path / "home", fixup) if has_base else fixup
    space = space_of(user, tmp_path / "home", good, fixup)
    assert files_at(space, make_point(0), tmp_path / "w0") == {"train.py": BROKEN.encode(), "b.py": b"one\n"}
    assert files_at(space, make_point(1), tmp_path / "w1") == {"train.py": FIXED.encode(), "b.py": b"three\n"}


def test_fixups_are_laid_in_their_order(user: UserRepo, tmp_path: Path) -> None:
    good = user.commit({"a.txt": "0\n"})
    user.commit({"a.txt": "1\n"})
    first = patch_of(user, {"a.txt": "2\n"})
    second = Fixup("second.patch", first.text.replace("+2", "+3").replace("-1", "-2"))
    there = space_of(user, tmp_path / "home", good, first, second)
    assert files_at(there, make_point(1), tmp_path / "w") == {"a.txt": b"3\n"}
    assert [use.num_applied for use in there.survey_fixups()] == [1, 1]
    back = space_of(user, tmp_path / "home", good, second, first)
    assert back.fixups_at(make_point(1)) == (False, True)
    with pytest.raises(InputError, match=r"second.patch does not apply to any of the 2 commits"):
        refuse_unused(back.survey_fixups())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"a": "x\n"}, {"a": "x\n", "new/deep.txt": "n\n"}),
        ({"a": "x\n", "gone": "g\n"}, {"a": "x\n", "gone": None}),
        ({"old name.txt": "moved\n" * 9}, {"old name.txt": None, "dir/ünew.txt": "moved\n" * 9}),
        ({"bin": bytes(range(256))}, {"bin": bytes(reversed(range(256)))}),
        ({"latin": b"caf\xe9\n" * 3}, {"latin": b"caf\xe9\n" * 3 + b"th\xe9\n"}),
        ({"crlf": b"a\r\nb\r\n"}, {"crlf": b"a\r\nc\r\n"}),
        ({"end": "a\nb"}, {"end": "a\nb\n"}),
        ({"d": "file\n"}, {"d": None, "d/inside": "file\nmore\n"}),
    ],
)
def test_fixup_of_any_kind_of_change_gives_the_tree_that_git_gives(
    user: UserRepo, tmp_path: Path, before: dict[str, str | bytes], after: dict[str, str | bytes | None]
) -> None:
    good = user.commit(before)
    user.commit({"other": "1\n"})
    fixup = patch_of(user, after, "--binary")
    path = tmp_path / "fix.patch"
    path.write_bytes(fixup.text.encode("utf-8", "surrogateescape"))
    kept = read_fixup(path, user.open(tmp_path / "home").git)
    assert kept.text == fixup.text
    space = space_of(user, tmp_path / "home", good, Question.of_json(_stored(user, kept)).fixups[0])
    user.git("apply", "--index", str(path))
    assert space.variant(make_point(1)).tree == user.git("write-tree")
    assert space.survey_fixups()[0].num_applied == 2


def _stored(user: UserRepo, fixup: Fixup) -> dict[str, object]:
    question = replace(question_of(user.head, user.head), fixups=(fixup,))
    data = json.loads(json.dumps(question.to_json()))
    assert isinstance(data, dict)
    return data


@by_context_and_merged
def test_fixup_of_a_mode_is_applied_once(user: UserRepo, tmp_path: Path, has_base: bool) -> None:
    good = user.commit({"run.sh": "#!/bin/sh\n"})
    (user.path / "run.sh").chmod(0o755)
    fixup = patch_of(user, {})
    fixup = with_base(user, tmp_path / "home", fixup) if has_base else fixup
    (user.path / "run.sh").chmod(0o755)
    user.commit()
    space = space_of(user, tmp_path / "home", good, fixup)
    assert [space.fixups_at(make_point(prefix)) for prefix in (0, 1)] == [(True,), (False,)]
    assert space.variant(make_point(0)).tree == space.variant(make_point(1)).tree


@by_context_and_merged
def test_fixup_does_not_land_in_a_copy_of_the_code_that_it_has_repaired(user: UserRepo, tmp_path: Path, has_base: bool) -> None:
    block = "".join(f"line {idx}\n" for idx in range(12))
    repaired = block.replace("line 5\n", "line 5\nnew\n")
    good = user.commit({"m.py": block})
    fixup = patch_of(user, {"m.py": repaired})
    fixup = with_base(user, tmp_path / "home", fixup) if has_base else fixup
    user.commit({"m.py": repaired + "# apart\n" * 5 + block})
    space = space_of(user, tmp_path / "home", good, fixup)
    assert [space.fixups_at(make_point(prefix)) for prefix in (0, 1)] == [(True,), (False,)]


def test_fixup_that_a_folder_stands_in_the_way_of_does_not_apply(user: UserRepo, tmp_path: Path) -> None:
    user.commit({"x": "1\n"})
    fixup = patch_of(user, {"sub": "a file\n"})
    good = user.commit({"sub/file": "1\n"})
    user.commit({"sub/file": "2\n"})
    [use] = space_of(user, tmp_path / "home", good, fixup).survey_fixups()
    assert (use.num_applied, use.reason) == (0, "sub is a folder")
    other = Fixup("f", fixup.text.replace("/sub", "/x/y"))
    assert space_of(user, tmp_path / "home", good, other).survey_fixups()[0].num_applied == 0


def test_fixup_is_merged_where_the_lines_around_it_have_changed(user: UserRepo, tmp_path: Path) -> None:
    home = tmp_path / "home"
    good = user.commit({"train.py": "import oss\nimport sys\nlr = 1\n"})
    user.commit({"train.py": "import oss\nimport sys\nlr = 2\n"})
    fixup = patch_of(user, {"train.py": "import os\nimport sys\nlr = 2\n"})
    user.commit({"train.py": "import os\nimport sys\nlr = 3\n"})
    by_context = space_of(user, home, good, fixup)
    merged = space_of(user, home, good, with_base(user, home, fixup))
    points = [make_point(prefix) for prefix in range(3)]
    assert [by_context.fixups_at(point)[0] for point in points] == [False, True, False]
    assert [merged.fixups_at(point)[0] for point in points] == [True, True, False]
    assert files_at(merged, points[0], tmp_path / "w") == {"train.py": b"import os\nimport sys\nlr = 1\n"}


def test_fixup_gives_the_same_state_when_the_repository_no_longer_holds_what_it_was_made_from(tmp_path: Path) -> None:
    states = ("import oss\nimport sys\nlr = 1\n", "import oss\nimport sys\nlr = 2\n")
    users = [UserRepo.create(tmp_path / name) for name in ("first", "second")]
    for user in users:
        user.commit({"train.py": states[0]})
        user.commit({"a.txt": "1\n"})
    users[0].git("checkout", "-q", "-b", "aside")
    users[0].commit({"train.py": states[1]})
    fixup = with_base(users[0], tmp_path / "home", patch_of(users[0], {"train.py": states[1].replace("oss", "os")}))
    users[0].git("checkout", "-q", "main")
    again = with_base(users[1], tmp_path / "other", fixup)
    assert fixup.base == (("train.py", "100644", states[1]),) and again.base == ()
    spaces = [
        space_of(user, tmp_path / name, user.git("rev-parse", "HEAD~1"), fixup) for user, name in zip(users, "ab", strict=True)
    ]
    assert spaces[0].variant(make_point(1)).tree == spaces[1].variant(make_point(1)).tree
    assert spaces[1].fixups_at(make_point(1)) == (True,)
    assert space_of(users[1], tmp_path / "c", users[1].head + "~1", again).survey_fixups()[0].num_applied == 0


def test_fixup_of_several_commits_in_one_file_is_applied_by_context(user: UserRepo, tmp_path: Path) -> None:
    good = user.commit({"train.py": BROKEN, "b.py": "1\n"})
    user.git("checkout", "-q", "-b", "repair")
    user.commit({"train.py": BROKEN.replace("oss", "os as o")})
    user.commit({"train.py": FIXED, "b.py": "2\n"})
    text = user.git("format-patch", "--stdout", "main") + "\n"
    user.git("checkout", "-q", "main")
    user.commit({"other": "1\n"})
    fixup = with_base(user, tmp_path / "home", Fixup("series.patch", text))
    space = space_of(user, tmp_path / "home", good, fixup)
    assert files_at(space, make_point(1), tmp_path / "w")["train.py"] == FIXED.encode()
    assert files_at(space, make_point(1), tmp_path / "v")["b.py"] == b"2\n"


def test_survey_of_a_long_range_needs_few_processes(user: UserRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = user.commit({"train.py": BROKEN})
    fixup = patch_of(user, {"train.py": FIXED})
    _import(user, [("a.txt", str(idx)) for idx in range(3000)])
    _import(user, [("train.py", FIXED)])
    space = space_of(user, tmp_path / "home", good, fixup)
    commands: list[str] = []
    run_git = plumbing.run_git
    monkeypatch.setattr(plumbing, "run_git", lambda args, **more: commands.append(args[0]) or run_git(args, **more))
    [use] = space.survey_fixups()
    assert (use.num_applied, use.num_tried, use.num_states) == (3001, 3002, 3002)
    assert len(commands) < 20, commands


def test_survey_of_many_versions_takes_a_sample_and_all_only_if_it_must(
    user: UserRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixup_module, "MAX_SURVEYED", 5)
    good = user.commit({"train.py": "number 0\n"})
    _import(user, [("train.py", f"number {idx}\n") for idx in range(1, 13)])
    second = Fixup("second", patch_of(user, {"train.py": "repaired\n"}).text.replace("number 12", "number 1"))
    (user.path / "train.py").chmod(0o755)
    mode = patch_of(user, {})  # each version of the busy file takes it
    other = patch_of(user, {"new.txt": "n\n"})  # there is one version of what is not there
    none = Fixup("none", second.text.replace("number 1", "number 99"))
    uses = [space_of(user, tmp_path / "home", good, item).survey_fixups()[0] for item in (second, mode, other, none)]
    found = [(use.num_applied, use.num_tried, use.num_states) for use in uses]
    assert found == [(1, 13, 13), (5, 5, 13), (13, 13, 13), (0, 13, 13)]
    assert uses[3].reason == "patch failed: train.py:1"


@by_context_and_merged
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nold\nb\n", "a\nnew\nb\n"),
        ("a\nold\nb\n", "a\nb\n"),
        ("a\nb\n", "a\nadded\nb\n"),
        ("a\nold\n" + "x\n" * 9 + "other\n", "a\nnew\n" + "x\n" * 9 + "another\n"),
        ("a\nold", "a\nnew"),
    ],
)
def test_survey_finds_the_one_version_in_many_that_takes_a_patch(
    user: UserRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, has_base: bool
) -> None:
    monkeypatch.setattr(fixup_module, "MAX_SURVEYED", 2)
    monkeypatch.setattr(fixup_module, "_READ_AT_ONCE", 3)
    good = user.commit({"train.py": "nothing\n", "b.txt": "1\n"})
    user.commit({"train.py": before})
    fixup = patch_of(user, {"train.py": after})
    fixup = with_base(user, tmp_path / "home", fixup) if has_base else fixup
    _import(user, [("train.py", f"else {idx}\n") for idx in range(9)])
    [use] = space_of(user, tmp_path / "home", good, fixup).survey_fixups()
    assert (use.num_applied, use.num_tried, use.num_states) == (1, 11, 11)


def test_survey_of_useless_patch_on_a_busy_file_needs_few_processes(
    user: UserRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = user.commit({"train.py": BROKEN})
    fixup = patch_of(user, {"train.py": FIXED})
    fixup = with_base(user, tmp_path / "home", replace(fixup, text=fixup.text.replace("import oss", "import nothing")))
    _import(user, [("train.py", f"{BROKEN}# {idx}\n") for idx in range(400)])
    space = space_of(user, tmp_path / "home", good, fixup)
    commands: list[str] = []
    run_git = plumbing.run_git
    monkeypatch.setattr(plumbing, "run_git", lambda args, **more: commands.append(args[0]) or run_git(args, **more))
    [use] = space.survey_fixups()
    assert (use.num_applied, use.num_tried) == (0, 401)
    assert len(commands) < 50 * 12, Counter(commands)  # the sample's only


def _import(user: UserRepo, contents: list[tuple[str, str]]) -> None:
    """Commit one file after the other, by one process."""
    stream = []
    for number, (name, text) in enumerate(contents):
        source = f"from {user.head}\n" if number == 0 else ""
        stream.append(
            f"commit refs/heads/main\ncommitter a <a@b> {1800000000 + number} +0000\ndata 1\nm\n{source}"
            f"M 100644 inline {name}\ndata {len(text)}\n{text}\n"
        )
    git(user.path, "fast-import", "--quiet", stdin="".join(stream).encode())
    user.git("reset", "-q", "--hard")


def test_fixup_is_stored_with_the_question_and_old_questions_have_none(user: UserRepo, tmp_path: Path) -> None:
    good, fixup = stretch(user)
    question = replace(question_of(good, user.head), fixups=(fixup,))
    stored = json.loads(json.dumps(question.to_json()))
    assert Question.of_json(stored) == question
    spaces = [build_space(user.open(tmp_path / home), Question.of_json(stored)) for home in ("home", "other home")]
    assert spaces[0].variant(make_point(3)) == spaces[1].variant(make_point(3))
    for name in ("fixups", "part_of", "priors"):
        del stored[name]
    del stored["limits"]["gpu_hours"], stored["settings"]["keep"], stored["range"]["descend"]
    assert Question.of_json(stored) == replace(question, fixups=())


@by_context_and_merged
def test_commands_to_reproduce_lay_the_fixup_over_the_checkout(user: UserRepo, tmp_path: Path, has_base: bool) -> None:
    good, fixup = stretch(user)
    fixup = with_base(user, tmp_path / "home", fixup) if has_base else fixup
    home = tmp_path / "ho me"
    space = space_of(user, home, good, fixup)
    git(tmp_path, "clone", "-q", str(user.path), "copy")
    for point in (make_point(2), make_point(3), make_point(3, minus=(0,)), make_point(5)):
        git(tmp_path / "copy", "reset", "-q", "--hard")
        commands = space.reproduce(point)
        for command in commands:
            subprocess.run(shlex.split(command), cwd=tmp_path / "copy", check=True, capture_output=True, env=_identity())
        git(tmp_path / "copy", "add", "-A")
        assert git(tmp_path / "copy", "write-tree") == space.variant(point).tree
        assert any("git apply" in command for command in commands) == space.fixups_at(point)[0]


def _identity() -> dict[str, str]:
    who = {f"GIT_{role}_{what}": "x@x" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", **who}


def _lab(tmp_path: Path) -> tuple[Lab, Fixup]:
    """A history whose culprit, commit 7, lies in a stretch that cannot run: 4 to 11."""
    lab = Lab.build(tmp_path, num_commits=14, culprit=7)
    commits = lab.commits
    repo = lab.repo
    repo.git("reset", "-q", "--hard", commits[0])
    lab.commits = [repo.commit({"dep.py": FIXED})]
    fixup = None
    for number, commit in enumerate(commits[1:], start=1):
        repo.git("checkout", "-q", commit, "--", "train.py")
        change = {4: BROKEN, 12: FIXED}.get(number)
        lab.commits.append(repo.commit({"dep.py": change} if change else {}))
        if number == 4:
            fixup = patch_of(repo, {"dep.py": FIXED})
    assert fixup is not None
    return lab, fixup


def _run(lab: Lab, job: ProbeJob) -> SimulatedRun:
    ending = None
    if b"oss" in files_of(lab.repo.open(lab.home).mirror, job.spec.variant.tree)["dep.py"]:
        ending = Ending(EndingKind.CRASHED, message="ModuleNotFoundError: oss", signature="ModuleNotFoundError: oss")
    level = lab.level_of(job)
    return SimulatedRun(fingerprint_of(level, seed_idx=job.spec.seed_idx, ending=ending))


def test_fixup_makes_a_stretch_testable_that_hid_the_culprit(tmp_path: Path) -> None:
    lab, fixup = _lab(tmp_path)
    executor = lab.executor(lambda job: _run(lab, job))
    _, without = drive(lab, MemoryStore(), executor=executor)
    assert without.answer.status == "candidates"

    question = lab.question(fixups=(fixup,))
    store = MemoryStore()
    name, ended = drive(lab, store, question=question, executor=lab.executor(lambda job: _run(lab, job)))
    space = lab.space(question)
    assert ended.answer.status == "isolated"
    assert [space.changes[idx].id for culprit in ended.answer.culprits for idx in culprit.changes] == [lab.commits[7]]

    points = [point_of_text(probe.spec["point"]) for probe in store.results(name)]
    [told] = warn_of_fixups(ended.plan_with_answer, space, points)
    num_applied = sum(space.fixups_at(point)[0] for point in set(points))
    assert told == f"--fixup fix.patch was applied to {num_applied} of {len(set(points))} states that were run"
    assert 0 < num_applied < len(set(points))


def test_fixup_that_begins_at_the_culprit_is_said_to_be_a_part_of_the_difference(tmp_path: Path) -> None:
    lab, fixup = _lab(tmp_path)
    lab.culprit = 4
    question = lab.question(fixups=(fixup,))
    _, ended = drive(lab, MemoryStore(), question=question, executor=lab.executor(lambda job: _run(lab, job)))
    told = warn_of_fixups(ended.plan_with_answer, lab.space(question), [])
    expected = f"--fixup fix.patch is in the state with {lab.commits[4][:8]} and not in the one before it"
    assert any(expected in text for text in told), told
