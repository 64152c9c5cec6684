"""One overlay patch (`--fixup`) and the trees that take it.

It applies wholly or not at all. Where the files that it was made from are known (`git diff` names them), it is merged
three-way, so that the lines around it may have changed; else, and where that conflicts, it applies by its context as plain
`git apply` does. These files are stored with the question: the same tree gives the same state on every day, whatever the
repository still holds. A tree that has the patch already stays as it is. What happens is decided by the entries at the
touched paths alone. Nothing is written but objects in our mirror.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bisect_train.changes.merge import Merger
from bisect_train.changes.plumbing import Git, decode, failure_of, fields_of, printable
from bisect_train.core.errors import InputError, MachineError, UnbuildableError
from bisect_train.core.question import Fixup

MAX_FIXUP_BYTES = 8 * 2**20
"""A patch, and the files that it was made from, are stored with the question; a larger one is no small repair."""

HOW_TO_MAKE = "make it at the top of the repository with `git diff > FILE` or `git format-patch --stdout -1 COMMIT > FILE`"

_NO_OBJECT = "0" * 40
_SUBMODULE = "160000"
_HUNK = re.compile(rb"@@ -\d+(?:,(\d{1,18}))? \+\d+(?:,(\d{1,18}))? @@")
_NO_LINES = re.compile(rb"^(rename|copy|old mode|new file mode|GIT binary patch|Binary files)", re.MULTILINE)

Entries = dict[str, tuple[str, str]]
"""Mode and object by path."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a tree does not take a patch."""

    reason: str


def find_base(git: Git, fixup: Fixup) -> tuple[tuple[str, str, str], ...]:
    """Return path, mode and content of the files that a patch was made from; () where the repository lacks one of them."""
    with scratch_index(git) as scratch:
        index = dict(scratch.env)["GIT_INDEX_FILE"]
        built = git.attempt("apply", f"--build-fake-ancestor={index}", "-", stdin=bytes_of(fixup))
        entries = _read_index(scratch) if built.returncode == 0 else {}
    contents = {path: git.run("cat-file", "blob", name) for path, (mode, name) in entries.items() if mode != _SUBMODULE}
    if len(contents) < len(entries) or sum(map(len, contents.values())) > MAX_FIXUP_BYTES:
        return ()
    return tuple((path, entries[path][0], decode(data)) for path, data in contents.items())


def paths_of(git: Git, fixup: Fixup) -> tuple[str, ...]:
    """Return the paths that a patch touches, old and new names.

    Raises:
        InputError: git cannot read the patch.
    """
    found: list[str] = []
    for direction in ((), ("-R",)):  # of a rename, git lists the new name only
        result = git.attempt("apply", "--numstat", "-z", *direction, "-", stdin=bytes_of(fixup))
        if result.returncode != 0:
            said = _last_error(result.stderr)
            raise InputError(f"--fixup {fixup.path} is no patch that git can read: {said}", hint=HOW_TO_MAKE)
        found += [field.split("\t", 2)[2] for field in fields_of(result.stdout)]
    return tuple(dict.fromkeys(found))


class Patch:
    """A checked fixup; remembers its decisions. Not thread-safe.

    Args:
        git: on our mirror.
        merger: makes synthetic trees there.
        fixup: what is applied.
    """

    def __init__(self, git: Git, merger: Merger, fixup: Fixup) -> None:
        self.path = fixup.path
        self._git = git
        self._merger = merger
        self._data = bytes_of(fixup)
        self._base = fixup.base
        self._decided: dict[frozenset[tuple[str, str, str]], bytes | Refusal] = {}

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths that it touches."""
        return paths_of(self._git, Fixup(self.path, decode(self._data)))

    @cached_property
    def _needed(self) -> frozenset[bytes]:
        """Lines that it removes; empty where a part of it removes none, so that nothing can be told from them."""
        return frozenset() if _NO_LINES.search(self._data) else _removed_lines(self._data)

    def may_apply(self, lines: Collection[bytes]) -> bool:
        """Return False only if files with these lines surely do not take it; cheap, for many versions of them."""
        # merged, one part may be there already; by context, all of them must be found
        is_enough = any if self._base else all
        return not self._needed or is_enough(line in lines for line in self._needed)

    def decide(self, tree: str) -> bytes | Refusal:
        """Return the edits that lay the patch over a tree, as `write` takes them, or why the tree does not take it.

        Raises:
            UnbuildableError: the tree cannot be read.
            MachineError: the mirror cannot be written.
        """
        before = self._entries_of(tree)
        if isinstance(before, Refusal):
            return before
        key = frozenset((path, *entry) for path, entry in before.items())
        if key not in self._decided:
            merged = self._merge(before)
            after = self._apply_by_context(before) if merged is None else merged
            unchanged = Refusal("it is in there already")
            self._decided[key] = after if isinstance(after, Refusal) else _edits(before, after) or unchanged
        return self._decided[key]

    def write(self, tree: str, edits: bytes) -> str:
        """Return a tree with edits of `decide`, written to the mirror."""
        with scratch_index(self._git) as git:
            git.run("read-tree", tree)
            git.run("update-index", "-z", "--index-info", stdin=edits)
            # objects that a broken repository lacks are reported where they are packed
            return git.text("write-tree", "--missing-ok")

    def _entries_of(self, tree: str) -> Entries | Refusal:
        """Return what a tree has at the touched paths and at files that stand in their way, or why it cannot be patched."""
        ways = dict.fromkeys(way for path in self.paths for way in (path, *_parents(path)))
        listed = self._git.attempt("ls-tree", "-z", tree, "--", *ways)
        if listed.returncode != 0:
            error = failure_of(("ls-tree",), listed, git_dir=self._git.git_dir)
            raise error if error.is_machine_trouble else UnbuildableError(f"tree {tree[:12]}: {error.message}", hint="git fsck")
        found: Entries = {}
        for head, _, path in (item.partition("\t") for item in fields_of(listed.stdout)):
            mode, kind, name = head.split()
            if kind != "tree":
                found[path] = (mode, name)
            elif path in self.paths:
                return Refusal(f"{printable(path)} is a folder")
        return found

    def _merge(self, before: Entries) -> Entries | None:
        """Return the entries with the patch merged in, or None if that is not possible; unchanged if they have it already."""
        if self._ends is None:
            return None
        try:
            merged = self._merger.pick(self._tree_with(before), before=self._ends[0], after=self._ends[1], what=self.path)
        except UnbuildableError:  # a conflict, or a git that cannot merge in memory
            return None
        return _read_entries(self._git.run("ls-tree", "-r", "-z", merged))

    @cached_property
    def _ends(self) -> tuple[str, str] | None:
        """The trees that the patch leads from and to, or None if they are not known."""
        entries: Entries = {}
        for path, mode, text in self._base:
            data = text.encode("utf-8", "surrogateescape")
            entries[path] = (mode, self._git.text("hash-object", "-w", "--stdin", stdin=data))
        with scratch_index(self._git) as git:
            git.run("update-index", "-z", "--index-info", stdin=_index_lines(entries))
            start = git.text("write-tree")
            # several commits in one file: not all files that they begin with are known
            return None if not entries or _apply(git, self._data) else (start, git.text("write-tree"))

    def _tree_with(self, entries: Entries) -> str:
        """Return the tree that has these entries only."""
        with scratch_index(self._git) as git:
            git.run("update-index", "-z", "--index-info", stdin=_index_lines(entries))
            return git.text("write-tree", "--missing-ok")

    def _apply_by_context(self, before: Entries) -> Entries | Refusal:
        with scratch_index(self._git) as git:
            git.run("update-index", "-z", "--index-info", stdin=_index_lines(before))
            if not _apply(git, self._data, "-R", "--check"):
                _apply(git, self._data, "-R")
                if _read_index(git) != before:  # else it is a change of mode: git only warns of another one
                    return before
            reason = _apply(git, self._data)
            return Refusal(reason) if reason else _read_index(git)


def bytes_of(fixup: Fixup) -> bytes:
    """Return a patch as it was read."""
    return fixup.text.encode("utf-8", "surrogateescape")


def _removed_lines(data: bytes) -> frozenset[bytes]:
    """Return the lines that a patch removes and does not add elsewhere; empty if one of its hunks removes none."""
    removed: set[bytes] = set()
    added: set[bytes] = set()
    lines = iter(data.split(b"\n"))
    for line in lines:
        if not (head := _HUNK.match(line)):
            continue
        num_old, num_new = (int(text) if text else 1 for text in (head[1] or b"1", head[2] or b"1"))
        hunk: set[bytes] = set()
        while num_old > 0 or num_new > 0:
            body = next(lines, None)
            if body is None:  # fewer lines than the header says
                break
            sign, text = body[:1], body[1:]
            num_old -= sign != b"+" and sign != b"\\"
            num_new -= sign != b"-" and sign != b"\\"
            (hunk if sign == b"-" else added if sign == b"+" else set()).add(text)
        if not hunk:
            return frozenset()
        removed |= hunk
    return frozenset(removed - added)


def _parents(path: str) -> tuple[str, ...]:
    parts = path.split("/")
    return tuple("/".join(parts[:num]) for num in range(1, len(parts)))


def _apply(git: Git, patch: bytes, *options: str) -> str:
    """Apply a patch to the index, wholly or not at all; return "" or why it does not apply."""
    result = git.attempt("apply", "--cached", "--whitespace=nowarn", *options, "-", stdin=patch)
    if result.returncode == 0:
        return ""
    error = failure_of(("apply",), result, git_dir=git.git_dir)
    if error.is_machine_trouble:
        raise error
    return _last_error(result.stderr)


def _last_error(stderr: bytes) -> str:
    lines = [line.removeprefix("error: ") for line in decode(stderr).splitlines() if line.startswith(("error: ", "fatal: "))]
    # git adds a line on --allow-empty, and says first where and then that
    first = lines[0] if lines else "git says nothing"
    return printable(first.partition(" (allow with")[0])


def _read_index(git: Git) -> Entries:
    return _read_entries(git.run("ls-files", "--stage", "-z"))


def _read_entries(listing: bytes) -> Entries:
    """Return the entries of `ls-files --stage` (mode, object, stage) or `ls-tree -r` (mode, kind, object)."""
    found: Entries = {}
    for head, _, path in (item.partition("\t") for item in fields_of(listing)):
        mode, second, third = head.split()
        found[path] = (mode, third if len(third) == len(_NO_OBJECT) else second)
    return found


def _index_lines(entries: Entries) -> bytes:
    lines = "".join(f"{mode} {name}\t{path}\0" for path, (mode, name) in entries.items())
    return lines.encode("utf-8", "surrogateescape")


def _edits(before: Entries, after: Entries) -> bytes:
    """Return what brings an index from one set of entries to another: what goes first, so that nothing is in the way."""
    gone: Entries = {path: ("0", _NO_OBJECT) for path in before if path not in after}
    return _index_lines(gone) + _index_lines({path: entry for path, entry in after.items() if before.get(path) != entry})


@contextmanager
def scratch_index(git: Git) -> Iterator[Git]:
    """Give git an index of its own, empty, that ends with the block."""
    with disk_errors(git.git_dir):
        folder = tempfile.TemporaryDirectory(prefix=".fixup-", dir=git.git_dir)
    with folder as name:
        yield git.with_env(GIT_INDEX_FILE=str(Path(name) / "index"))


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into MachineError that names `path`."""
    try:
        yield
    except OSError as error:
        hint = "make room there, or set BISECT_TRAIN_HOME to a folder that can be written"
        raise MachineError(f"cannot write to {path}: {error.strerror}", hint=hint) from error
