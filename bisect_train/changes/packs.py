"""Git objects for workers, as packs: one big pack for the whole range, small ones for what is made on the way.

Packs hold trees and blobs in full and commits without their parents: a worker checks out, it does not read history. They
are kept under `home/packs`, so that a resumed bisection ships the same bytes under the same id.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bisect_train.changes.plumbing import Git, GitCommandError, fields_of, printable
from bisect_train.core.errors import MachineError, UnbuildableError
from bisect_train.core.probe import Pack

MAX_RANGE_COMMITS = 2000
"""Beyond this many candidates a search runs few of them: the trees are shipped one by one, as differences to the ends."""

MAX_RANGE_BYTES = 64 * 2**20
"""The same for the size of all candidates' objects, bytes on disk."""

_SHA1_BYTES = 20
_MAX_SHOWN_PATHS = 3


@dataclass(frozen=True, slots=True)
class ObjectList:
    """Objects that a tree or a set of commits is made of; `missing` ones are not in the repository."""

    present: tuple[str, ...]
    missing: frozenset[str]


def list_objects(git: Git, commits: Iterable[str]) -> ObjectList:
    """Return the objects of these commits and their trees, without their history.

    Raises:
        UnbuildableError: the commits cannot be read.
    """
    return _list(git, ("--no-walk=unsorted",), commits)


def list_tree_objects(git: Git, tree: str, *, without: Iterable[str] = ()) -> ObjectList:
    """Return the objects of a tree that the trees `without` do not have.

    Raises:
        UnbuildableError: the tree cannot be read.
    """
    return _list(git, (), (tree, *(f"^{other}" for other in without)))


def _list(git: Git, options: Sequence[str], names: Iterable[str]) -> ObjectList:
    stdin = "".join(f"{name}\n" for name in names).encode()
    try:
        output = git.text("rev-list", "--objects", "--no-object-names", "--missing=print", *options, "--stdin", stdin=stdin)
    except GitCommandError as error:
        raise _unbuildable("objects are missing from the repository", error) from error
    lines = output.split()
    present = tuple(line for line in lines if not line.startswith("?"))
    return ObjectList(present, frozenset(line[1:] for line in lines if line.startswith("?")))


def num_bytes_of(git: Git, objects: Sequence[str]) -> int:
    """Return the bytes that these objects take on the user's disk."""
    stdin = "".join(f"{name}\n" for name in objects).encode()
    return sum(map(int, git.text("cat-file", "--batch-check=%(objectsize:disk)", stdin=stdin).split()))


def check_complete(git: Git, tree: str, *, inside: str = "") -> None:
    """Raise UnbuildableError, naming the paths, if a tree lacks objects (a partial clone; nothing is ever fetched).

    Args:
        git: on our mirror.
        tree: to look at.
        inside: path of the submodule that the tree belongs to, or "".
    """
    missing = list_tree_objects(git, tree).missing
    if not missing:
        return
    listing = git.attempt("ls-tree", "-r", "-t", "-z", tree)
    entries = (item.partition("\t") for item in fields_of(listing.stdout))
    paths = [printable(f"{inside}/{path}" if inside else path) for head, _, path in entries if head.split()[2] in missing]
    shown = ", ".join(paths[:_MAX_SHOWN_PATHS]) or "its tree"
    more = f" and {len(paths) - _MAX_SHOWN_PATHS} more" if len(paths) > _MAX_SHOWN_PATHS else ""
    raise UnbuildableError(
        f"objects are missing from the repository: {shown}{more} (tree {tree[:12]})",
        hint="in a partial clone: git fetch --refetch --no-filter; otherwise it is damaged (git fsck): take a fresh clone",
    )


class PackShelf:
    """Makes packs and keeps them, in memory and on disk.

    Args:
        folder: where the packs of one repository are kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._packs: dict[str, Pack] = {}

    def pack(self, git: Git, objects: Sequence[str]) -> Pack:
        """Return the pack of these objects; the same objects give the same pack.

        Raises:
            UnbuildableError: an object is missing.
            MachineError: the folder cannot be written.
        """
        digest = hashlib.sha256("\n".join(sorted(objects)).encode()).hexdigest()[:32]
        if digest not in self._packs:
            path = self._folder / f"{digest}.pack"
            data = _read_pack(path)
            if data is None:
                data = _make_pack(git, objects)
                _keep(path, data)
            self._packs[digest] = Pack(hashlib.sha256(data).hexdigest()[:16], data)
        return self._packs[digest]


def _make_pack(git: Git, objects: Sequence[str]) -> bytes:
    stdin = "".join(f"{name}\n" for name in objects).encode()
    try:
        return git.run("pack-objects", "--stdout", "-q", "--delta-base-offset", stdin=stdin)
    except GitCommandError as error:
        raise _unbuildable("objects cannot be packed", error) from error


def _read_pack(path: Path) -> bytes | None:
    """Return a kept pack, or None if there is none or it was torn (its trailer is the SHA-1 of all before)."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body, trailer = data[:-_SHA1_BYTES], data[-_SHA1_BYTES:]
    return data if hashlib.sha1(body, usedforsecurity=False).digest() == trailer else None


def _keep(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(scratch).rename(path)
    except OSError as error:
        hint = "make room there, or set BISECT_TRAIN_HOME to a folder that can be written"
        raise MachineError(f"cannot write to {path.parent}: {error.strerror}", hint=hint) from error


def _unbuildable(what: str, error: GitCommandError) -> GitCommandError | UnbuildableError:
    return error if error.is_machine_trouble else UnbuildableError(f"{what}: {error.message}", hint="git fsck")
