"""Overlay patches (`--fixup`): laid over each state that they apply to, so that commits that cannot run become testable.

One patch and one tree: see `fixup_patch`. Here are the files of the command line, several patches in their order, and the
survey of a range, which costs one decision per version of the touched files, not one per commit.
"""

from __future__ import annotations

import hashlib
import posixpath
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bisect_train.changes.fixup_patch import (
    HOW_TO_MAKE,
    MAX_FIXUP_BYTES,
    Patch,
    Refusal,
    disk_errors,
    find_base,
    paths_of,
)
from bisect_train.changes.merge import Merger
from bisect_train.changes.plumbing import Git, decode, printable
from bisect_train.core.errors import InputError, UnbuildableError
from bisect_train.core.question import Fixup

_READ_AT_ONCE = 100

MAX_SURVEYED = 50
"""Versions of the touched files that are tried before a bisection starts; all of them only if none of these takes the patch."""


@dataclass(frozen=True, slots=True)
class FixedTree:
    """A tree with the patches that apply to it; `applied` has one flag for each patch."""

    tree: str
    applied: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class FixupUse:
    """How many states take a patch.

    Attributes:
        path: the patch file as it was named.
        num_applied: states that it was applied to.
        num_tried: states that were looked at.
        num_states: all states there are.
        reason: why the last state, the bad end, does not take it; "" if it does.
    """

    path: str
    num_applied: int
    num_tried: int
    num_states: int
    reason: str = ""


def read_fixup(path: Path, git: Git) -> Fixup:
    """Return a patch file's content, checked.

    Args:
        path: output of `git diff` or `git format-patch`.
        git: on our mirror.
    Raises:
        InputError: it cannot be read, is empty or malformed, or touches a path outside the tree.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FIXUP_BYTES + 1)
    except OSError as error:
        raise InputError(f"--fixup {path} cannot be read: {error.strerror}", hint=HOW_TO_MAKE) from None
    if len(data) > MAX_FIXUP_BYTES:
        raise InputError(f"--fixup {path} is larger than {MAX_FIXUP_BYTES // 2**20} MiB", hint="split it, or commit the repair")
    if not data.strip():
        raise InputError(f"--fixup {path} is empty", hint=HOW_TO_MAKE)
    fixup = Fixup(str(path), decode(data))
    for name in paths_of(git, fixup):
        if _is_outside(name):
            rule = "a patch names files of the repository, relative to its top"
            raise InputError(f"--fixup {path} touches {printable(name)!r}, which is outside the tree", hint=rule)
    return replace(fixup, base=find_base(git, fixup))


def add_uses(parts: Sequence[Sequence[FixupUse]]) -> tuple[FixupUse, ...]:
    """Return the uses of the same patches in several sets of states, added up."""
    return tuple(
        FixupUse(
            uses[-1].path,
            num_applied=sum(use.num_applied for use in uses),
            num_tried=sum(use.num_tried for use in uses),
            num_states=sum(use.num_states for use in uses),
            reason=uses[-1].reason,
        )
        for uses in zip(*parts, strict=True)
    )


def refuse_unused(uses: Sequence[FixupUse]) -> None:
    """Raise InputError for a patch that no state takes: it would change nothing."""
    for use in uses:
        if use.num_applied == 0:
            where = "the commit" if use.num_states == 1 else f"any of the {use.num_states:,} commits, at the last one because"
            raise InputError(f"--fixup {use.path} does not apply to {where}: {use.reason}", hint=HOW_TO_MAKE)


class Fixups:
    """Lays patches over trees, in their order, and remembers what came of it. Not thread-safe.

    Args:
        git: on our mirror.
        fixups: checked patches.
        folder: where patches for single states are kept for people.
    """

    def __init__(self, git: Git, fixups: Sequence[Fixup], *, folder: Path) -> None:
        merger = Merger(git)
        self._git = git
        self._patches = tuple(Patch(git, merger, fixup) for fixup in fixups)
        self._folder = folder
        self._fixed: dict[str, FixedTree] = {}

    def fix(self, tree: str) -> FixedTree:
        """Return a tree with all patches that apply to it; written to the mirror.

        Raises:
            UnbuildableError: the tree cannot be read.
            MachineError: the mirror cannot be written.
        """
        if tree not in self._fixed:
            fixed = tree
            applied: list[bool] = []
            for patch in self._patches:
                decision = patch.decide(fixed)
                applied.append(isinstance(decision, bytes))
                if isinstance(decision, bytes):
                    fixed = patch.write(fixed, decision)
            self._fixed[tree] = FixedTree(fixed, tuple(applied))
        return self._fixed[tree]

    def names(self, applied: Sequence[bool]) -> tuple[str, ...]:
        """Return the patch files that flags of `fix` stand for, as they were named."""
        return tuple(patch.path for patch, is_applied in zip(self._patches, applied, strict=True) if is_applied)

    def commands(self, tree: str) -> tuple[str, ...]:
        """Return the command that brings a checkout of a tree to what `fix` makes of it, by a patch file kept for it.

        Raises:
            UnbuildableError: the tree cannot be read.
            MachineError: the file cannot be written.
        """
        fixed = self.fix(tree)
        if fixed.tree == tree:
            return ()
        data = self._git.run("diff-tree", "-r", "-p", "--binary", "--full-index", tree, fixed.tree)
        names = [Path(path).name for path in self.names(fixed.applied)]
        path = self._folder / hashlib.sha256(data).hexdigest()[:12] / (names[0] if len(names) == 1 else "fixups.patch")
        _write_once(path, data)
        return (f"git apply {shlex.quote(str(path))}",)

    def survey(self, commits: Sequence[str]) -> tuple[FixupUse, ...]:
        """Return for each patch how many commits take it, the last commit's reason included where it does not.

        Commits whose touched files are alike are decided together. Of up to `MAX_SURVEYED` versions of these files all
        are tried; of more, so many spread ones, and all that may take it where a patch would else seem useless.
        """
        if not self._patches:
            return ()
        versions = self._group(commits)
        groups = list(versions.values())
        chosen = _spread(groups)
        uses = self._count(chosen, commits)
        if len(chosen) == len(groups) or all(use.num_applied for use in uses):
            return uses
        hopeful = [versions[objects] for objects in self._find_hopeful(list(versions))]
        return tuple(replace(use, num_tried=len(commits)) for use in self._count(hopeful, commits))

    def _find_hopeful(self, versions: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
        """Yield the versions of the touched files, as objects, whose lines some patch may apply to."""
        for start in range(0, len(versions), _READ_AT_ONCE):
            chunk = versions[start : start + _READ_AT_ONCE]
            lines = _read_lines(self._git, {name for objects in chunk for name in objects if name})
            for objects in chunk:
                found = frozenset().union(*(lines[name] for name in objects if name))
                if any(patch.may_apply(found) for patch in self._patches):
                    yield objects

    def _count(self, groups: Sequence[Sequence[str]], commits: Sequence[str]) -> tuple[FixupUse, ...]:
        num_applied = [0] * len(self._patches)
        for group in groups:
            for idx, refusal in enumerate(self._decide_all(group[0])):
                num_applied[idx] += len(group) if refusal is None else 0
        num_tried = sum(map(len, groups))
        at_end = self._decide_all(commits[-1])
        return tuple(
            FixupUse(patch.path, num_applied[idx], num_tried, len(commits), refusal.reason if refusal else "")
            for idx, (patch, refusal) in enumerate(zip(self._patches, at_end, strict=True))
        )

    def _decide_all(self, tree: str) -> list[Refusal | None]:
        """Return for each patch why a tree does not take it, None where it does; writes only what the next patch needs."""
        refusals: list[Refusal | None] = []
        for patch in self._patches:
            try:
                decision = patch.decide(tree)
                if isinstance(decision, bytes) and patch is not self._patches[-1]:
                    tree = patch.write(tree, decision)
            except UnbuildableError as error:
                decision = Refusal(error.message)
            refusals.append(decision if isinstance(decision, Refusal) else None)
        return refusals

    def _group(self, commits: Sequence[str]) -> dict[tuple[str, ...], list[str]]:
        """Return the commits by the objects at the touched paths, "" where there is none; by one process for all of them."""
        paths = dict.fromkeys(path for patch in self._patches for path in patch.paths if "\n" not in path)
        lines = "".join(f"{commit}:{path}\n" for commit in commits for path in paths)
        stdin = lines.encode("utf-8", "surrogateescape")
        output = self._git.text("cat-file", "--batch-check=%(objectname)", stdin=stdin).split("\n")
        found = ["" if line.endswith(" missing") else line for line in output]
        groups: dict[tuple[str, ...], list[str]] = {}
        for idx, commit in enumerate(commits):
            groups.setdefault(tuple(found[idx * len(paths) : (idx + 1) * len(paths)]), []).append(commit)
        return groups


def _read_lines(git: Git, names: Collection[str]) -> dict[str, frozenset[bytes]]:
    """Return the lines of objects, by one process; of one that is missing there are none."""
    data = git.run("cat-file", "--batch", stdin="".join(f"{name}\n" for name in names).encode())
    found, at = {}, 0
    for name in names:
        end = data.index(b"\n", at)
        head, at = data[at:end].split(), end + 1
        size = int(head[2]) if len(head) == 3 else -1  # `NAME missing` has no content and no newline after it
        found[name] = frozenset(data[at : at + max(size, 0)].split(b"\n"))
        at += size + 1
    return found


def _write_once(path: Path, data: bytes) -> None:
    if path.is_file() and path.read_bytes() == data:
        return
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".tmp")
        beside.write_bytes(data)
        beside.replace(path)


def _is_outside(path: str) -> bool:
    parts = path.split("/")
    return posixpath.isabs(path) or any(part in ("", ".", "..") or part.lower() == ".git" for part in parts)


def _spread(groups: list[list[str]]) -> list[list[str]]:
    """Return at most `MAX_SURVEYED` groups, evenly spread over the range by where their versions first appear."""
    num = len(groups)
    if num <= MAX_SURVEYED:
        return groups
    return [groups[idx * (num - 1) // (MAX_SURVEYED - 1)] for idx in range(MAX_SURVEYED)]
