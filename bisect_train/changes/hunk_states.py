"""From a set of the changes inside one commit to the commit and tree that hold it, and the patch that is this set.

The parent's tree gets the chosen parts of each file: hunks, config keys, whole files (`hunk_files`), in an order in which
what defines comes before what uses (`hunk_order`). A merge is taken against its first parent: what it brought in, as one
change. A state in which a Python file no longer compiles, though both of its versions do, is not built: it would cost a probe
to learn nothing. All is written to our mirror only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bisect_train.changes.fixup_patch import disk_errors, scratch_index
from bisect_train.changes.hunk_files import FileChange, Part, python_error, read_files
from bisect_train.changes.hunk_order import groups_of, needs_of, order_of
from bisect_train.changes.hunks import DIFF_OPTIONS
from bisect_train.changes.merge import Merger
from bisect_train.changes.plumbing import Git, GitCommandError, decode, printable
from bisect_train.changes.worktree import write_commit
from bisect_train.core.changes import Change, Point
from bisect_train.core.errors import UnbuildableError

_NO_OBJECT = "0" * 40


@dataclass(frozen=True, slots=True)
class Piece:
    """One change inside a commit.

    Attributes:
        change: kind HUNK with the id `path:START,COUNT` (lines of the commit's file; COUNT 0: removed after line START),
            `path:PACKAGE` (its line in a list of requirements) or `path` (a whole file, its name or its mode), or kind CONFIG
            with the id `path:dotted.key`.
        path: of the file in the commit, of a deleted one in the parent; as git has it (`change` has it printable).
    """

    change: Change
    path: str


class HunkStates:
    """States inside a commit. Not thread-safe; remembers states.

    Args:
        git: on our mirror.
        parent: commit before; of a merge the first parent.
        commit: to look into.

    Attributes:
        pieces: what can be applied or left out, in an order in which a piece comes after those that it needs.
        changes: the same as changes.
        needs: for each piece the indices of those that it seems to need (names that they define), sorted.

    Raises:
        UnbuildableError: an object is missing.
    """

    def __init__(self, git: Git, *, parent: str, commit: str) -> None:
        self._git = git
        self._parent, self._commit = parent, commit
        merger = Merger(git)
        self._before, self._after = merger.tree_of(parent), merger.tree_of(commit)
        self._files = read_files(git, self._before, self._after)
        parts = [(idx, part) for idx, file in enumerate(self._files) for part in file.parts]
        needs = needs_of(self._files, parts)
        order = order_of(needs)
        place = {old: new for new, old in enumerate(order)}
        self._parts = tuple(parts[old] for old in order)
        self.needs = tuple(tuple(sorted(place[need] for need in needs[old])) for old in order)
        self.pieces = tuple(Piece(self._files[idx].change_of(part), self._files[idx].path) for idx, part in self._parts)
        self.changes = tuple(piece.change for piece in self.pieces)
        self._trees: dict[frozenset[int], str] = {}
        self._blobs: dict[tuple[int, frozenset[Part]], str] = {}

    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Return the sets of two pieces or more that need each other in a ring; their members are neighbours in the order."""
        return tuple(group for group in groups_of([set(needs) for needs in self.needs]) if len(group) > 1)

    def state_of(self, point: Point) -> tuple[str, str]:
        """Return the commit and the tree of a point over the pieces.

        Nothing is the parent itself, everything the commit itself; else a synthetic commit on top of the parent.

        Raises:
            ValueError: the point names a piece that does not exist.
            UnbuildableError: a Python file does not compile, a file would lie where a folder is, or a config cannot be
                written.
        """
        chosen = self._chosen(point)
        for idx, file in enumerate(self._files):
            self._check_python(file, self._parts_in(chosen, idx))
        tree = self._tree_of(chosen)
        if tree in (self._before, self._after):
            return (self._parent if tree == self._before else self._commit), tree
        message = f"bisect-train: {point.to_text()} of {len(self.pieces)} changes inside {self._commit[:12]}"
        return write_commit(self._git, tree, message=message, parents=(self._parent,)), tree

    def patch_of(self, indices: Collection[int], *, folder: str = "") -> str:
        """Return some pieces as a patch that `git apply` takes on the parent; "" for none.

        Bytes that are not UTF-8 are in it as surrogate escapes, and line ends as they are: write it with
        `encode("utf-8", "surrogateescape")`. A state that does not compile has a patch too.

        Args:
            indices: of the pieces.
            folder: where the tree lies in the checkout that takes the patch, "" for its top.
        Raises:
            ValueError: there is no such piece.
            UnbuildableError: as `state_of`, but for Python.
        """
        unknown = [idx for idx in indices if not 0 <= idx < len(self.pieces)]
        if unknown:
            raise ValueError(f"pieces are numbered 0..{len(self.pieces) - 1}, got {unknown[0]}")
        tree = self._tree_of(frozenset(indices))
        places = [f"--{side}-prefix={letter}/{folder}/" for side, letter in (("src", "a"), ("dst", "b"))] if folder else []
        options = ("-r", "-p", "--binary", "-M", *DIFF_OPTIONS, *places)
        return decode(self._git.run("diff-tree", *options, self._before, tree))

    def commands_for(self, point: Point) -> tuple[str, ...]:
        """Return (): the commit of a state is fetched from our mirror; `patch_of` is what a person applies by hand."""
        return ()

    def _chosen(self, point: Point) -> frozenset[int]:
        highest = max((point.prefix - 1, *point.plus, *point.minus))
        if point.prefix < 0 or highest >= len(self.pieces):
            raise ValueError(f"there are {len(self.pieces)} changes inside {self._commit[:12]}, the set is {point.to_text()}")
        return frozenset(idx for idx in range(len(self.pieces)) if point.holds(idx))

    def _parts_in(self, chosen: frozenset[int], file_idx: int) -> frozenset[Part]:
        return frozenset(self._parts[idx][1] for idx in self._pieces_in[file_idx] if idx in chosen)

    @cached_property
    def _pieces_in(self) -> dict[int, list[int]]:
        """The pieces of each file."""
        found: dict[int, list[int]] = {idx: [] for idx in range(len(self._files))}
        for idx, (file_idx, _) in enumerate(self._parts):
            found[file_idx].append(idx)
        return found

    def _check_python(self, file: FileChange, parts: frozenset[Part]) -> None:
        entry = file.entry_with(parts)
        if entry is None or entry.blob or not file.is_python:
            return
        problem = python_error(file.content_with(parts))
        if problem:
            raise UnbuildableError(f"{printable(entry.path)} is no valid Python with these hunks only: {problem}")

    def _tree_of(self, chosen: frozenset[int]) -> str:
        """Return the tree that some pieces give, written to the mirror."""
        if chosen not in self._trees:
            self._trees[chosen] = self._write_tree(chosen)
        return self._trees[chosen]

    def _write_tree(self, chosen: frozenset[int]) -> str:
        if not chosen:
            return self._before
        if len(chosen) == len(self.pieces):
            return self._after
        by_file = [self._parts_in(chosen, idx) for idx in range(len(self._files))]
        entries = [file.entry_with(parts) for file, parts in zip(self._files, by_file, strict=True)]
        _check_places([entry.path for entry in entries if entry])
        self._write_blobs([idx for idx, entry in enumerate(entries) if entry and not entry.blob], by_file)
        gone, lines = [], []
        for idx, (file, entry) in enumerate(zip(self._files, entries, strict=True)):
            if file.before and (entry is None or entry.path != file.before.path):
                gone.append(f"0 {_NO_OBJECT}\t{file.before.path}\0")
            if entry and entry != file.before:
                lines.append(f"{entry.mode} {entry.blob or self._blobs[idx, by_file[idx]]}\t{entry.path}\0")
        with scratch_index(self._git) as git:
            with disk_errors(git.git_dir):
                _index_path(git).write_bytes(self._base_index)
            # what goes first, so that no file is in the way of a folder
            git.run("update-index", "-z", "--index-info", stdin="".join(gone + lines).encode("utf-8", "surrogateescape"))
            return git.text("write-tree", "--missing-ok")

    @cached_property
    def _base_index(self) -> bytes:
        """The index file of the parent's tree; read once, since a large tree takes a while."""
        with scratch_index(self._git) as git:
            try:
                git.run("read-tree", self._before)
            except GitCommandError as error:
                if error.is_machine_trouble:
                    raise
                raise UnbuildableError(f"tree {self._before[:12]} cannot be read: {error.message}", hint="git fsck") from error
            return _index_path(git).read_bytes()

    def _write_blobs(self, file_indices: Sequence[int], by_file: Sequence[frozenset[Part]]) -> None:
        """Write the contents of files that are like neither end, all by one command, and remember their objects."""
        keys = [(idx, by_file[idx]) for idx in file_indices if (idx, by_file[idx]) not in self._blobs]
        contents = [self._files[idx].content_with(parts) for idx, parts in keys]
        if not keys:
            return
        with scratch_index(self._git) as git, disk_errors(git.git_dir):
            folder = _index_path(git).parent
            for number, data in enumerate(contents):
                (folder / str(number)).write_bytes(data)
            names = "".join(f"{number}\n" for number in range(len(contents))).encode()
            written = decode(git.run("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=names, cwd=folder)).split()
        self._blobs.update(zip(keys, written, strict=True))


def _index_path(git: Git) -> Path:
    return Path(dict(git.env)["GIT_INDEX_FILE"])


def _check_places(paths: Sequence[str]) -> None:
    """Raise if one of the files would lie where another one's folder is."""
    taken = set(paths)
    for path in paths:
        for way in _folders(path):
            if way in taken:
                raise UnbuildableError(f"{printable(way)} is a file and a folder with these changes only")


def _folders(path: str) -> Iterator[str]:
    parts = path.split("/")
    yield from ("/".join(parts[:num]) for num in range(1, len(parts)))
