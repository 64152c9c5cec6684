"""States inside one commit: what is a piece, what a set of pieces gives, and the patch that is this set."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bisect_train.changes.hunk_states import HunkStates
from bisect_train.changes.repository import Repository
from bisect_train.core.changes import ChangeKind, Point, make_point
from bisect_train.core.errors import UnbuildableError
from tests.support.git_repos import UserRepo, files_of, git, state_of
from tests.support.properties import examples

Files = dict[str, str | bytes | None]


@dataclass
class Lab:
    """A user's repository with a commit to look into."""

    user: UserRepo
    repository: Repository
    states: HunkStates
    parent: str
    commit: str

    @property
    def ids(self) -> list[str]:
        return [change.id for change in self.states.changes]

    def tree(self, *chosen: int) -> str:
        return self.states.state_of(make_point(0, plus=chosen))[1]

    def files(self, *chosen: int) -> dict[str, bytes]:
        return files_of(self.repository.mirror, self.tree(*chosen))

    def applied(self, *chosen: int) -> str:
        """Return the tree that a person gets who applies the patch to a checkout of the parent."""
        folder = self.repository.home.parent / "checkout"
        if not folder.exists():
            self.user.git("worktree", "add", "-q", "--detach", str(folder), self.parent)
        git(folder, "reset", "-q", "--hard", self.parent)
        git(folder, "clean", "-qfdx")
        patch = self.states.patch_of(chosen).encode("utf-8", "surrogateescape")
        if patch:
            git(folder, "apply", "--index", "--whitespace=nowarn", "-", stdin=patch)
        return git(folder, "write-tree")


def look_into(user: UserRepo, folder: Path, *, parent: str, commit: str) -> Lab:
    repository = user.open(folder / "home")
    states = HunkStates(repository.git, parent=parent, commit=commit)
    return Lab(user, repository, states, user.git("rev-parse", parent), user.git("rev-parse", commit))


def lab_of(folder: Path, before: Files, after: Files) -> Lab:
    user = UserRepo.create(folder / "repo")
    parent = user.commit(before)
    return look_into(user, folder, parent=parent, commit=user.commit(after))


def check_patches(lab: Lab) -> None:
    """Check that the patch of every single piece, and of everything, gives the tree of the state."""
    num = len(lab.states.pieces)
    for chosen in [(), *((idx,) for idx in range(num)), tuple(range(num))]:
        assert lab.applied(*chosen) == lab.tree(*chosen), chosen


BEFORE = "".join(f"line {number}\n" for number in range(1, 21))
AFTER = BEFORE.replace("line 3\n", "line three\n").replace("line 10\n", "").replace("line 15\n", "line 15\nline 15.5\n")


def test_pieces_of_a_text_file_are_its_hunks(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"a.txt": BEFORE}, {"a.txt": AFTER})
    assert lab.ids == ["a.txt:3,1", "a.txt:9,0", "a.txt:15,1"]
    assert {change.kind for change in lab.states.changes} == {ChangeKind.HUNK}
    assert [change.title for change in lab.states.changes] == [
        "a.txt:3,1: line 3 -> line three (+1 -1)",
        "a.txt:9,0: without line 10 (+0 -1)",
        "a.txt:15,1: line 15.5 (+1 -0)",
    ]
    assert lab.files(0, 2)["a.txt"].decode() == AFTER.replace("line 9\n", "line 9\nline 10\n")
    assert lab.files(1)["a.txt"].decode() == BEFORE.replace("line 10\n", "")
    check_patches(lab)


def test_ends_are_the_users_own_commits_and_states_lie_on_the_parent(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"a.txt": BEFORE}, {"a.txt": AFTER})
    assert lab.states.state_of(Point(0)) == (lab.parent, lab.user.git("rev-parse", f"{lab.parent}^{{tree}}"))
    assert lab.states.state_of(Point(3)) == (lab.commit, lab.user.git("rev-parse", f"{lab.commit}^{{tree}}"))
    commit, tree = lab.states.state_of(Point(1))
    assert lab.states.state_of(make_point(3, minus=(1, 2))) == (commit, tree)
    assert lab.repository.git.text("rev-parse", f"{commit}^", f"{commit}^{{tree}}").split() == [lab.parent, tree]
    assert lab.states.commands_for(Point(1)) == ()


def test_users_repository_is_left_alone(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"a.txt": BEFORE}, {"a.txt": AFTER, "new.txt": "x\n"})
    before = state_of(lab.user.path)
    lab.states.state_of(Point(2))
    lab.states.patch_of([1])
    assert state_of(lab.user.path) == before
    assert not list(lab.repository.mirror.glob(".fixup-*"))


def test_unknown_piece_is_refused(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"a.txt": BEFORE}, {"a.txt": AFTER})
    for point in (Point(4), Point(-1), Point(0, plus=(3,))):
        with pytest.raises(ValueError, match="there are 3 changes"):
            lab.states.state_of(point)
    with pytest.raises(ValueError, match=r"0\.\.2, got 3"):
        lab.states.patch_of([0, 3])


def test_commit_without_changes_has_no_pieces(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"a.txt": "a\n"}, {})
    assert lab.states.pieces == ()
    assert lab.states.state_of(Point(0))[0] == lab.parent
    assert lab.states.patch_of([]) == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\nb\nc", b"x\nb\nc\nd"),
        (b"a\nb\nc", b"x\nb\nc\n"),
        (b"a\nb\nc\n", b"x\nb\nc"),
        (b"a\r\nb\r\nc\r\n", b"x\r\nb\r\nc\n"),
        (b"a\rb\nb\nc\x0cd\n", b"x\rb\nb\nc\x0ce\n"),
        (b"caf\xe9\nb\n\xff\xfe\n", b"caf\xe8\nb\n\xff\n"),
        (b"--- a/x\nb\n@@ -1 +1 @@\n", b"--- a/y\nb\n@@ -2 +2 @@\nindex 1..2\n"),
    ],
    ids=["no-newline-moves", "newline-comes", "newline-goes", "crlf", "other-line-ends", "not-utf-8", "looks-like-a-diff"],
)
def test_odd_bytes_stay_as_they_are(tmp_path: Path, before: bytes, after: bytes) -> None:
    lab = lab_of(tmp_path, {"a.txt": before}, {"a.txt": after})
    assert len(lab.ids) == 2
    first, second = lab.files(0)["a.txt"], lab.files(1)["a.txt"]
    assert first.startswith(after.split(b"\n")[0]) and first.endswith(before.split(b"\n", 1)[1])
    assert second.startswith(before.split(b"\n")[0]) and second.endswith(after.split(b"\n", 1)[1])
    check_patches(lab)


def test_files_that_come_or_go_or_are_binary_are_one_piece_each(tmp_path: Path) -> None:
    big = "".join(f"def f{idx}():\n    return {idx}\n\n\n" for idx in range(200))
    before: Files = {"gone.txt": "a\n\nb\n", "image.bin": b"a\0b\nc\n", "keep.txt": "k\n", "empty.txt": ""}
    lab = lab_of(
        tmp_path, before, {"gone.txt": None, "image.bin": b"x\0b\nd\n", "big.py": big, "void.txt": "", "empty.txt": None}
    )
    assert lab.ids == ["big.py", "empty.txt", "gone.txt", "image.bin", "void.txt"]
    titles = [change.title for change in lab.states.changes]
    assert titles[0] == "big.py: file added" and titles[2] == "gone.txt: file deleted"
    assert titles[3] == "image.bin: content changed"
    assert set(lab.files(0)) == {*before, "big.py"}
    assert set(lab.files(2)) == {"empty.txt", "image.bin", "keep.txt"}
    assert lab.files(3)["image.bin"] == b"x\0b\nd\n"
    check_patches(lab)


def test_renamed_file_and_its_hunks_are_free_of_each_other(tmp_path: Path) -> None:
    lab = lab_of(
        tmp_path,
        {"old.txt": BEFORE, "same.txt": "s\n" * 9},
        {"old.txt": None, "d/new.txt": AFTER, "same.txt": None, "s": "s\n" * 9},
    )
    assert lab.ids == ["d/new.txt", "d/new.txt:3,1", "d/new.txt:9,0", "d/new.txt:15,1", "s"]
    assert lab.states.changes[0].title == "d/new.txt: renamed from old.txt"
    assert lab.files(0)["d/new.txt"].decode() == BEFORE
    assert lab.files(1)["old.txt"].decode() == BEFORE.replace("line 3\n", "line three\n")
    assert set(lab.files(4)) == {"old.txt", "s"}
    check_patches(lab)
    assert lab.applied(0, 2) == lab.tree(0, 2)


def test_modes_links_and_types_are_pieces(tmp_path: Path) -> None:
    user = UserRepo.create(tmp_path / "repo")
    user.write("run.sh", "a\nb\nc\n")
    user.write("tool", "t\n")
    user.write("file", "was a file\n")
    (user.path / "link").symlink_to("run.sh")
    parent = user.commit()
    (user.path / "run.sh").chmod(0o755)
    user.write("run.sh", "x\nb\nc\n")
    (user.path / "tool").chmod(0o755)
    for name, target in (("link", "tool"), ("file", "tool")):
        (user.path / name).unlink()
        (user.path / name).symlink_to(target)
    lab = look_into(user, tmp_path, parent=parent, commit=user.commit())
    assert lab.ids == ["file", "link", "run.sh", "run.sh:1,1", "tool"]
    titles = [change.title.partition(": ")[2] for change in lab.states.changes]
    assert titles[:3] == ["mode 100644 -> 120000, content changed", "link changed", "mode 100644 -> 100755"]
    modes = lab.repository.git.text("ls-tree", lab.tree(2), "run.sh")
    assert modes.startswith("100755") and lab.files(2)["run.sh"] == b"a\nb\nc\n"
    assert lab.repository.git.text("ls-tree", lab.tree(3), "run.sh").startswith("100644")
    check_patches(lab)


def test_submodule_bump_is_one_piece(tmp_path: Path) -> None:
    library = UserRepo.create(tmp_path / "library")
    first = library.commit({"lib.py": "x = 1\n"})
    second = library.commit({"lib.py": "x = 2\n"})
    user = UserRepo.create(tmp_path / "repo")
    user.git("submodule", "add", "-q", str(library.path), "lib")
    git(user.path / "lib", "checkout", "-q", first)
    parent = user.commit({"a.txt": "a\n"})
    git(user.path / "lib", "checkout", "-q", second)
    lab = look_into(user, tmp_path, parent=parent, commit=user.commit({"a.txt": "b\n"}))
    assert lab.ids == ["a.txt:1,1", "lib"]
    assert lab.states.changes[1].title == f"lib: submodule {first[:12]} -> {second[:12]}"
    assert second in lab.repository.git.text("ls-tree", lab.tree(1), "lib")
    assert first in lab.repository.git.text("ls-tree", lab.tree(0), "lib")
    assert f"+Subproject commit {second}" in lab.states.patch_of([1])


def test_file_that_becomes_a_folder_needs_the_file_gone(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"pkg": "x\n", "z.txt": "1\n"}, {"pkg": None})
    lab = look_into(lab.user, tmp_path, parent=lab.parent, commit=lab.user.commit({"pkg/a.txt": "y\n"}))
    assert lab.ids == ["pkg", "pkg/a.txt"]
    back = look_into(lab.user, tmp_path, parent=lab.commit, commit=lab.parent)  # and the other way round
    assert back.ids == ["pkg/a.txt", "pkg"]
    assert set(lab.files(0)) == {"z.txt"} and set(back.files(0)) == {"z.txt"}
    for states in (lab.states, back.states):
        with pytest.raises(UnbuildableError, match="pkg is a file and a folder"):
            states.state_of(make_point(0, plus=(1,)))


def test_odd_paths_are_printable_in_changes_and_exact_in_trees(tmp_path: Path) -> None:
    name = os.fsdecode(b'caf\xe9 "q"\ttab\n.txt')
    lab = lab_of(tmp_path, {name: "a\nb\nc\n", "ü.txt": "1\n"}, {name: "x\nb\nz\n", "ü.txt": "2\n"})
    assert [piece.path for piece in lab.states.pieces] == [name, name, "ü.txt"]
    assert lab.ids[0].isprintable() and lab.ids[2] == "ü.txt:1,1"
    assert lab.files(1)[name] == b"a\nb\nz\n"
    check_patches(lab)


CONFIG_BEFORE = "# training\nlr: 0.1  # peak\nlayers: 2\nopt:\n  name: adam\n  eps: 1.0e-8\n"
CONFIG_AFTER = "# training, tuned\nlr: 0.3  # peak\nlayers: 2\nopt:\n  name: lion\n  eps: 1.0e-8\nwarmup: 10\n"


def test_config_file_is_taken_apart_by_keys(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"c/train.yaml": CONFIG_BEFORE, "x.txt": "a\n"}, {"c/train.yaml": CONFIG_AFTER, "x.txt": "b\n"})
    assert lab.ids == ["c/train.yaml:lr", "c/train.yaml:opt.name", "c/train.yaml:warmup", "x.txt:1,1"]
    assert [change.kind for change in lab.states.changes] == [ChangeKind.CONFIG] * 3 + [ChangeKind.HUNK]
    assert lab.states.changes[0].title == "lr: 0.1 -> 0.3 (in c/train.yaml)"
    assert lab.files(1)["c/train.yaml"].decode() == CONFIG_BEFORE.replace("adam", "lion")
    assert lab.files(0, 1, 2)["c/train.yaml"].decode() == CONFIG_AFTER  # comments too
    assert lab.tree(0, 1, 2, 3) == lab.user.git("rev-parse", f"{lab.commit}^{{tree}}")
    check_patches(lab)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: [\nb: 1\n", "a: [\nb: 2\n"),
        ("- a\n- b\n", "- a\n- c\n"),
        ("a: 1 # x\nb: 2\n", "a: 1 # y\nb: 2\n"),
    ],
    ids=["unreadable", "no-mapping", "comments-only"],
)
def test_config_that_cannot_be_taken_apart_is_text(tmp_path: Path, before: str, after: str) -> None:
    lab = lab_of(tmp_path, {"c.yaml": before}, {"c.yaml": after})
    assert [change.kind for change in lab.states.changes] == [ChangeKind.HUNK]
    check_patches(lab)


def test_json_and_toml_have_keys_and_a_renamed_config_too(tmp_path: Path) -> None:
    before: Files = {"a.json": '{"x": 1, "y": 2}\n', "b.toml": "[t]\nx = 1\ny = 2\n"}
    after: Files = {"a.json": '{"x": 3, "y": 4}\n', "b.toml": None, "d.toml": "[t]\nx = 1\ny = 5\n"}
    lab = lab_of(tmp_path, before, after)
    assert lab.ids == ["a.json:x", "a.json:y", "d.toml", "d.toml:t.y"]
    assert lab.files(3)["b.toml"] == b"[t]\nx = 1\ny = 5\n"
    assert lab.files(1)["a.json"].replace(b" ", b"").replace(b"\n", b"") == b'{"x":1,"y":4}'
    check_patches(lab)


PY_BEFORE = """\
def loss(x):
    return x


def train(x):
    if x:
        y = loss(x)
    return y
"""
PY_AFTER = """\
def loss(x):
    return x + 1


def train(x):
    try:
        y = loss(x)
    finally:
        print(x)
    return y
"""


def test_state_that_does_not_compile_is_not_built(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"train.py": PY_BEFORE}, {"train.py": PY_AFTER})
    assert lab.ids == ["train.py:2,1", "train.py:6,1", "train.py:8,2"]
    lab.states.state_of(Point(1))
    with pytest.raises(UnbuildableError, match=r"train\.py is no valid Python with these hunks only: line \d+"):
        lab.states.state_of(Point(2))
    assert lab.files(1, 2)["train.py"].decode() == PY_AFTER.replace("x + 1", "x")
    assert "try:" in lab.states.patch_of([1])


def test_file_that_never_compiled_is_not_checked(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"train.py": "print 'a'\n" + PY_BEFORE}, {"train.py": "print 'a'\n" + PY_AFTER})
    lab.states.state_of(Point(2))


def test_pieces_come_after_what_defines_them_and_removals_after_the_last_use(tmp_path: Path) -> None:
    before = "import old\n\nx = 1\n\n\ndef f():\n    return old.g()\n"
    after = "import new\n\nx = 1\n\n\ndef f():\n    return new.g()\n"
    used = {"a.py": before, "old.py": "def g():\n    return 1\n\n\nclass K:\n    pass\n"}
    lab = lab_of(tmp_path, used, {"a.py": after, "old.py": None, "new.py": "GAMMA = 3\n\n\ndef g():\n    return GAMMA\n"})
    assert lab.ids == ["new.py", "a.py:1,1", "a.py:7,1", "old.py"]
    # the import and its use are a ring: neither runs without the other
    assert lab.states.groups() == ((1, 2),)
    assert lab.states.needs == ((), (0, 2), (0, 1), (1, 2))


def test_merge_is_taken_against_its_first_parent(tmp_path: Path) -> None:
    user = UserRepo.create(tmp_path / "repo")
    user.commit({"a.txt": BEFORE})
    user.git("checkout", "-q", "-b", "topic")
    user.commit({"a.txt": BEFORE.replace("line 3\n", "line three\n")})
    user.commit({"b.txt": "b\n"})
    user.git("checkout", "-q", "main")
    parent = user.commit({"a.txt": BEFORE.replace("line 20\n", "line twenty\n")})
    merge = user.merge("topic")
    lab = look_into(user, tmp_path, parent=parent, commit=merge)
    assert lab.ids == ["a.txt:3,1", "b.txt"]
    assert lab.files(0)["a.txt"].decode() == BEFORE.replace("line 3\n", "line three\n").replace("line 20\n", "line twenty\n")
    check_patches(lab)
    user.git("checkout", "-q", "--detach", parent)
    user.git("merge", "-q", "--squash", "topic")
    squash = look_into(user, tmp_path, parent=parent, commit=user.commit())
    assert squash.ids == lab.ids and squash.tree(0) == lab.tree(0)


def test_missing_object_is_named(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, {"a.txt": BEFORE}, {"a.txt": AFTER})
    blob = lab.user.git("rev-parse", f"{lab.commit}:a.txt")
    (lab.user.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(UnbuildableError, match=r"objects are missing from the repository: a\.txt"):
        HunkStates(lab.repository.git, parent=lab.parent, commit=lab.commit)
    with pytest.raises(UnbuildableError, match="cannot be read"):
        HunkStates(lab.repository.git, parent="1" * 40, commit=lab.commit)


_NAMES = ["a.txt", "b", "d/e", "d/f.py", "moved.txt"]
_LINE = st.sampled_from([b"a", b"b", b"", b"\r", b"\xff", b"-- a", b"+", b"\\ No newline", b"x = 1", b"if x:", b"  y = 2"])


@st.composite
def _text(draw: st.DrawFn) -> bytes:
    return b"\n".join(draw(st.lists(_LINE, max_size=24))) + draw(st.sampled_from([b"", b"\n"]))


@st.composite
def _edited(draw: st.DrawFn, text: bytes) -> bytes:
    """Return a text with a few lines replaced, removed or added."""
    lines = text.split(b"\n")
    for start in sorted(draw(st.sets(st.integers(0, len(lines)), max_size=5)), reverse=True):
        lines[start : start + draw(st.integers(0, 2))] = draw(st.lists(_LINE, max_size=3))
    return b"\n".join(lines)


@st.composite
def _commits(draw: st.DrawFn) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the files before and after a commit that edits, adds, deletes and may rename."""
    before = draw(st.dictionaries(st.sampled_from(_NAMES[:-1]), _text(), max_size=4))
    after = {name: draw(st.one_of(_edited(text), _edited(text), st.just(text))) for name, text in before.items()}
    for name in draw(st.sets(st.sampled_from(_NAMES[:-1]), max_size=2)):
        after.pop(name, None) if name in after else after.update({name: draw(_text())})
    if "a.txt" in after and draw(st.booleans()):
        after["moved.txt"] = after.pop("a.txt")
    return before, after


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[UserRepo, Path]:
    folder = tmp_path_factory.mktemp("hunks")
    user = UserRepo.create(folder / "repo")
    user.commit({"keep": "k\n"})
    return user, folder


@given(commits=_commits(), data=st.data())
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_patch_of_any_set_gives_the_tree_of_its_state(
    shared: tuple[UserRepo, Path], commits: tuple[dict[str, bytes], dict[str, bytes]], data: st.DataObject
) -> None:
    user, folder = shared
    before, after = commits
    user.git("rm", "-rfq", "--ignore-unmatch", *_NAMES)
    parent = user.commit(dict(before))
    commit = user.commit({**dict.fromkeys(before.keys() - after.keys()), **after})
    lab = look_into(user, folder, parent=parent, commit=commit)
    num = len(lab.states.pieces)
    assert lab.tree(*range(num)) == user.git("rev-parse", f"{commit}^{{tree}}")
    chosen = sorted(data.draw(st.sets(st.integers(0, num - 1)))) if num else []
    try:
        tree = lab.tree(*chosen)
    except UnbuildableError as error:
        assert "no valid Python" in error.message
        return
    assert lab.applied(*chosen) == tree


def squash_of(num_files: int, hunks_each: int) -> tuple[Files, Files]:
    """Return files of functions, and the same with changed functions of about 25 lines."""
    before: Files = {}
    after: Files = {}
    for file in range(num_files):
        old, new = [], []
        for idx in range(hunks_each):
            body = [f"    x{line} = {line} * value\n" for line in range(26)]
            old += [f"def f{idx}(value):\n", *body, "    return value\n\n\n"]
            new += [f"def f{idx}(value):\n", *(line.replace("*", "+") for line in body), "    return value\n\n\n"]
        before[f"src/m{file}.py"], after[f"src/m{file}.py"] = "".join(old), "".join(new)
    return before, after


def test_squash_of_60_hunks_is_quick(tmp_path: Path) -> None:
    lab = lab_of(tmp_path, *squash_of(6, 10))
    assert len(lab.ids) == 60
    assert lab.states.groups() == ()
    lab.states.state_of(Point(1))
    costs = []
    for prefix in (30, 15, 7, 45, 52, 59):
        start = cpu_seconds()
        lab.states.state_of(Point(prefix))
        costs.append(cpu_seconds() - start)
    assert sorted(costs)[3] < 0.05, costs


def cpu_seconds() -> float:
    """Return what this process and the git commands that it has waited for have used, whatever else the machine does."""
    return sum(os.times()[:4])
