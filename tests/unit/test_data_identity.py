"""Identity of linked data: by content, wherever it lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bisect_train.changes.data import BLOCK_BYTES, SMALL_FILE_BYTES, digest_links, digest_path
from bisect_train.core.changes import DataLink
from bisect_train.core.errors import InputError


def make_tree(root: Path) -> Path:
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("a")
    (root / "sub" / "b.bin").write_bytes(b"\0\1" * 100)
    return root


def make_big(path: Path, *, mtime_ns: int = 10**18) -> Path:
    with path.open("wb") as file:
        file.truncate(SMALL_FILE_BYTES + 12345)
    os.utime(path, ns=(mtime_ns, mtime_ns))
    return path


def test_same_content_elsewhere_has_the_same_digest(tmp_path: Path) -> None:
    one, two = make_tree(tmp_path / "one"), make_tree(tmp_path / "x" / "two")
    os.utime(two / "a.txt", ns=(5, 5))
    assert digest_path(one) == digest_path(two)
    assert len(digest_path(one)) == 32


@pytest.mark.parametrize("change", ["content", "name", "added", "removed", "empty folder", "file to folder"])
def test_any_difference_changes_the_digest(tmp_path: Path, change: str) -> None:
    root = make_tree(tmp_path / "data")
    before = digest_path(root)
    match change:
        case "content":
            (root / "sub" / "b.bin").write_bytes(b"\0\1" * 99 + b"\0\2")
        case "name":
            (root / "a.txt").rename(root / "c.txt")
        case "added":
            (root / "new").write_text("")
        case "removed":
            (root / "a.txt").unlink()
        case "empty folder":
            (root / "empty").mkdir()
        case "file to folder":
            (root / "a.txt").unlink()
            (root / "a.txt").mkdir()
    assert digest_path(root) != before


def test_content_cannot_be_mistaken_for_a_name(tmp_path: Path) -> None:
    for name, files in {"one": {"a": "bc", "d": ""}, "two": {"a": "b", "cd": ""}}.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    assert digest_path(tmp_path / "one") != digest_path(tmp_path / "two")


def test_big_file_is_known_by_size_time_and_blocks(tmp_path: Path) -> None:
    path = make_big(tmp_path / "big")
    before = digest_path(path)
    assert digest_path(make_big(tmp_path / "copy")) == before
    assert digest_path(make_big(tmp_path / "later", mtime_ns=10**18 + 1)) != before
    size = path.stat().st_size
    for offset in (0, size - 1, size // 15):
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(b"x")
        os.utime(path, ns=(10**18, 10**18))
        after = digest_path(path)
        assert after != before
        before = after
    with path.open("r+b") as file:  # between the blocks, with the time put back: not noticed, as documented
        file.seek(BLOCK_BYTES + 10)
        file.write(b"x")
    os.utime(path, ns=(10**18, 10**18))
    assert digest_path(path) == before


def test_file_of_the_limit_is_read_in_full(tmp_path: Path) -> None:
    path = tmp_path / "limit"
    path.write_bytes(b"\0" * SMALL_FILE_BYTES)
    before = digest_path(path)
    with path.open("r+b") as file:
        file.seek(BLOCK_BYTES + 10)
        file.write(b"x")
    assert digest_path(path) != before


def test_links_are_followed(tmp_path: Path) -> None:
    real, linked = make_tree(tmp_path / "real"), tmp_path / "linked"
    linked.mkdir()
    (linked / "a.txt").symlink_to(real / "a.txt")
    (linked / "sub").symlink_to(real / "sub")
    assert digest_path(linked) == digest_path(real)
    (real / "a.txt").write_text("other")
    assert digest_path(linked) == digest_path(real)


def test_what_cannot_be_read_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such data"):
        digest_path(tmp_path / "none")
    root = make_tree(tmp_path / "data")
    (root / "dead").symlink_to(root / "none")
    with pytest.raises(InputError, match=r"data/dead: this link leads nowhere"):
        digest_path(root)
    (root / "dead").unlink()
    (root / "sub" / "up").symlink_to(root)
    with pytest.raises(InputError, match="leads back into a folder"):
        digest_path(root)
    (root / "sub" / "up").unlink()
    (root / "self").symlink_to(root / "self")
    with pytest.raises(InputError, match="data/self: cannot read this data"):
        digest_path(root)
    (root / "self").unlink()
    os.mkfifo(root / "pipe")
    with pytest.raises(InputError, match="neither a file nor a folder"):
        digest_path(root)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_data_without_permission_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    (tmp_path / "x").chmod(0)
    with pytest.raises(InputError, match="no permission"):
        digest_path(tmp_path)


def test_digest_of_links_depends_on_content_and_target_not_on_order(tmp_path: Path) -> None:
    one, two = make_tree(tmp_path / "one"), make_tree(tmp_path / "two")
    (two / "a.txt").write_text("2")
    links = [DataLink(str(one), "data"), DataLink(str(two), "more")]
    assert digest_links([]) == ""
    assert digest_links(links) == digest_links(links[::-1])
    assert digest_links(links) != digest_links([DataLink(str(one), "more"), DataLink(str(two), "data")])
