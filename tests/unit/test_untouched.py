"""What a commit changes, and whether a program that read so much could notice: each kind of path, each status."""

from __future__ import annotations

from itertools import product

import pytest

from bisect_train.changes.untouched import FileChange, Kind, Reader, is_documentation, kind_of
from bisect_train.core.reads import ReadSet

READS = ReadSet(
    files=("conf/used.yaml", "pkg/__init__.py", "pkg/model.py", "train.py"),
    folders=("data", "data/raw"),
    searched=("", "pkg"),
    natives=("numpy", "torch"),
)
GITLINK, LINK, EXECUTABLE, PLAIN, NONE = "160000", "120000", "100755", "100644", "000000"


def modified(path: str, mode: str = PLAIN) -> FileChange:
    return FileChange(path, "M", mode, mode)


def added(path: str, *, is_folder_kept: bool = True, mode: str = PLAIN) -> FileChange:
    return FileChange(path, "A", NONE, mode, is_folder_kept)


def deleted(path: str, *, is_folder_kept: bool = True, mode: str = PLAIN) -> FileChange:
    return FileChange(path, "D", mode, NONE, is_folder_kept)


def is_untouched(*changes: FileChange, reads: ReadSet = READS, targets: tuple[str, ...] = ()) -> bool:
    return Reader(reads, targets=targets).is_untouched(changes)


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        (
            Kind.PROSE,
            "README.md docs/a.rst note.ipynb LICENSE LICENSE.txt sub/.gitignore .github/workflows/ci.yml .github/x.json",
        ),
        (Kind.CODE, "a.py b.pyi run.sh Makefile Dockerfile tests/conftest.py setup.py"),
        (Kind.SETTINGS, "pyproject.toml setup.cfg tox.ini c.yaml c.yml"),
        (Kind.PICTURE, "a.png b.JPG c.jpeg d.gif e.svg f.webp"),
        (Kind.OTHER, "a.json b.txt c.csv d.bin e.pt f.safetensors g.model h.so i.cpp j.cu k.pth l.npy README data.md.gz x.pyx"),
    ],
)
def test_kind_of_a_path_is_told_by_its_name(kind: Kind, paths: str) -> None:
    assert {path: kind_of(path) for path in paths.split()} == dict.fromkeys(paths.split(), kind)


@pytest.mark.parametrize(
    "path", ["other.py", "pkg/unused.py", "README.md", "conf/other.yaml", "pyproject.toml", "setup.py", "a.png"]
)
def test_modified_file_that_was_not_read_is_untouched(path: str) -> None:
    assert is_untouched(modified(path)) and is_untouched(modified(path, EXECUTABLE))


@pytest.mark.parametrize("path", ["train.py", "pkg/model.py", "conf/used.yaml"])
def test_file_that_was_read_is_touched_whatever_happens_to_it(path: str) -> None:
    assert not any(is_untouched(change) for change in (modified(path), added(path), deleted(path)))


@pytest.mark.parametrize(
    "path", ["a.json", "vocab.txt", "x.csv", "w.bin", "w.pt", "w.safetensors", "spm.model", "lib.so", "README"]
)
def test_kinds_that_native_code_reads_are_touched_though_nobody_was_seen_to_read_them(path: str) -> None:
    assert not any(is_untouched(change) for change in (modified(path), added(path), deleted(path)))


@pytest.mark.parametrize("path", [".gitattributes", "sub/.gitattributes", ".gitmodules"])
def test_files_that_change_what_others_are_are_touched(path: str) -> None:
    assert not any(is_untouched(change) for change in (modified(path), added(path), deleted(path)))


@pytest.mark.parametrize("path", ["README.md", "other.py", "tests/test_a.py", ".github/workflows/ci.yml"])
@pytest.mark.parametrize(
    ("status", "old", "new"),
    [
        *[("M", old, new) for old, new in product((PLAIN, EXECUTABLE, LINK, GITLINK), repeat=2) if old != new],
        *[("M", LINK, LINK), ("M", GITLINK, GITLINK), ("A", NONE, LINK), ("A", NONE, GITLINK), ("D", LINK, NONE)],
        *[
            ("D", GITLINK, NONE),
            ("T", PLAIN, LINK),
            ("T", LINK, PLAIN),
            ("R", PLAIN, PLAIN),
            ("U", PLAIN, PLAIN),
            ("X", PLAIN, PLAIN),
        ],
    ],
)
def test_links_submodules_modes_and_types_are_touched(path: str, status: str, old: str, new: str) -> None:
    assert not is_untouched(FileChange(path, status, old, new))


@pytest.mark.parametrize("make", [added, deleted])
def test_new_or_lost_documentation_is_untouched_unless_its_folder_was_listed(make) -> None:  # type: ignore[no-untyped-def]
    for path in ("README.md", "docs/a.rst", "pkg/notes.ipynb", "LICENSE", ".github/workflows/ci.yml", "docs/a.png"):
        assert is_untouched(make(path)), path
    for path in ("data/README.md", "data/raw/a.png"):
        assert not is_untouched(make(path)), path


@pytest.mark.parametrize("make", [added, deleted])
def test_new_or_lost_folder_of_documentation_is_touched_where_the_folder_above_was_looked_into(make) -> None:  # type: ignore[no-untyped-def]
    assert not is_untouched(make("guide/a.md", is_folder_kept=False)), "an import would find a package of that name"
    assert not is_untouched(make("data/new/a.md", is_folder_kept=False))
    blind = ReadSet(files=("scripts/train.py",), searched=("scripts",))
    assert is_untouched(make("guide/a.md", is_folder_kept=False), reads=blind)
    assert not is_untouched(make("scripts/guide/deep/a.md", is_folder_kept=False), reads=blind)


@pytest.mark.parametrize("make", [added, deleted])
def test_new_or_lost_python_file_is_untouched_only_in_a_folder_of_tests_that_nobody_looked_into(make) -> None:  # type: ignore[no-untyped-def]
    assert is_untouched(make("tests/test_a.py")) and is_untouched(make("pkg/tests/unit/test_a.py"))
    for path in ("other.py", "pkg/new.py", "conf/new.py", "tools/run.py", "tests/conftest.py", "tests/sitecustomize.py"):
        assert not is_untouched(make(path)), path
    assert not is_untouched(make("tests/test_a.py", is_folder_kept=False)), "`import tests` may find it now"
    for seen in (ReadSet(searched=("tests",)), ReadSet(folders=("tests/unit",)), ReadSet(files=("tests/helper.py",))):
        assert not is_untouched(make("tests/unit/test_a.py"), reads=seen)
    assert (
        not is_untouched(make("tests/test_a.sh"))
        and not is_untouched(make("tests/a.yaml"))
        and not is_untouched(make("run.sh"))
    )


def test_files_beside_listed_ones_are_touched_even_modified() -> None:
    assert not is_untouched(modified("data/prepare.py"))
    assert is_untouched(modified("data/raw/deep/prepare.py")), "its own folder was not listed"


@pytest.mark.parametrize("path", ["conf/other.yaml", "pyproject.toml", "docs/a.png"])
def test_settings_and_pictures_are_touched_where_unknown_native_code_is_loaded(path: str) -> None:
    for natives in (("cv2", "torch"), ("torchvision",), ("libfoo.so.2",)):
        assert not is_untouched(modified(path), reads=ReadSet(natives=natives))
    assert is_untouched(modified("other.py"), modified("README.md"), reads=ReadSet(natives=("cv2",)))
    assert is_untouched(modified(path), reads=ReadSet(natives=("libc.so.6", "numpy", "torch", "yaml")))


@pytest.mark.parametrize("path", ["licence", "licence/corpus/README.md", "licence/corpus"])
def test_paths_that_linked_data_take_are_touched(path: str) -> None:
    assert not is_untouched(added(path), reads=ReadSet(), targets=("licence/corpus/",))
    assert is_untouched(added("licence/other/README.md"), reads=ReadSet(), targets=("licence/corpus",))


def test_commit_is_untouched_only_if_all_of_its_files_are() -> None:
    assert is_untouched() and is_untouched(modified("a.py"), added("docs/a.md"), deleted("tests/test_a.py"))
    assert not is_untouched(modified("a.py"), modified("train.py"))


def test_read_set_with_doubts_says_nothing() -> None:
    with pytest.raises(ValueError, match=r"os\.fork"):
        Reader(ReadSet(doubts=("os.fork",)))


def test_documentation_is_prose_alone_and_no_special_file() -> None:
    assert is_documentation(modified("README.md")) and is_documentation(added(".github/workflows/ci.yml"))
    for change in (modified("a.py"), modified("a.png"), modified("a.yaml"), FileChange("README.md", "M", PLAIN, EXECUTABLE)):
        assert not is_documentation(change)
    assert not is_documentation(modified(".github/.gitattributes"))
