"""What differs between the ends beside commits: each kind is an axis, a list of changes and what a set of them does.

A `Draft` is a variant in the making. It begins as the good end has it; each axis applies the changes that were chosen on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from bisect_train.changes.arguments import diff_commands
from bisect_train.changes.config import ConfigDiff
from bisect_train.core.changes import Change, ChangeKind, DataLink, FilePatch, digest_of
from bisect_train.core.question import DataEnd, EndState
from bisect_train.core.secrets import HIDDEN, is_secret, mask_logins

OVERRIDES = "{overrides}"
PYTHON, IMAGE = "python (interpreter)", "container image"
RANKS = "ranks"
"""Id of the launch change that is the number of processes."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A variant in the making, beside its tree.

    Attributes:
        command: the training command; `{overrides}` still stands in it.
        overrides: config keys that are given on the command line, as arguments.
        config: the generated file for `{config}`, or None.
        files: (path in the tree, content) of files that take the place of the commit's.
        gitlinks: (path in the checkout, commit) of submodules that take the place of the commit's.
        env: environment variables by name.
        packages: exact requirements that differ between the ends.
        data: by target.
        ranks: processes, or None for the rung's.
        python, interpreter: see `core.changes.Variant`.
        launcher: arguments before the whole command.
    """

    command: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    config: FilePatch | None = None
    files: tuple[tuple[str, str], ...] = ()
    gitlinks: tuple[tuple[str, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    packages: tuple[str, ...] = ()
    data: tuple[DataEnd, ...] = ()
    ranks: int | None = None
    python: str = ""
    interpreter: str = ""
    launcher: tuple[str, ...] = ()

    @property
    def full_command(self) -> tuple[str, ...]:
        """The command with the overrides in their place."""
        filled: list[str] = []
        for part in self.command:
            filled += self.overrides if part == OVERRIDES else (part,)
        return tuple(filled)

    @property
    def links(self) -> tuple[DataLink, ...]:
        """The data as links."""
        return tuple(item.link for item in self.data)

    def data_digest(self, linked: str) -> str:
        """Return the digest of all data, given that of what every variant has."""
        own = [[item.link.target, item.digest] for item in self.data]
        return digest_of([linked, own]) if own else linked


class Axis(Protocol):
    """The changes of one kind."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes, each after what it needs."""

    @property
    def is_ordered(self) -> bool:
        """Whether a change needs all those before it."""

    def apply(self, draft: Draft, chosen: Sequence[Change]) -> Draft:
        """Return the draft with the good end's state of this axis and the chosen changes."""


class ConfigAxis:
    """Keys of a config file that lies outside the history: a generated file, or overrides on the command line."""

    is_ordered = False

    def __init__(self, diff: ConfigDiff) -> None:
        self._diff = diff
        self.changes = diff.changes

    def apply(self, draft: Draft, chosen: Sequence[Change]) -> Draft:
        """Return the draft with its config; keys given on the command line leave the file as the good end has it."""
        config = self._diff.render(() if self._diff.override else chosen)
        return replace(draft, config=config, overrides=self._diff.overrides(chosen))


class TreeConfigAxis:
    """Keys of a config file in the repository that does not travel with the commits: one end's file, with the chosen keys.

    Without changes it is held: every variant has the same file.
    """

    is_ordered = False

    def __init__(self, diff: ConfigDiff, path: str) -> None:
        self._diff = diff
        self._path = path
        self.changes = diff.changes

    def apply(self, draft: Draft, chosen: Sequence[Change]) -> Draft:
        """Return the draft with the file in the tree."""
        return replace(draft, files=(*draft.files, (self._path, self._diff.render(chosen).text)))


class EnvAxis:
    """Environment variables."""

    is_ordered = False

    def __init__(self, good: EndState, bad: EndState, *, common: Sequence[tuple[str, str]]) -> None:
        self._good, self._bad = {**dict(common), **dict(good.env)}, {**dict(common), **dict(bad.env)}
        names = sorted(self._good.keys() | self._bad.keys())
        self.changes = tuple(
            Change(ChangeKind.ENV, name, f"{name}: {_say(self._good, name)} -> {_say(self._bad, name)}")
            for name in names
            if self._good.get(name) != self._bad.get(name)
        )

    def apply(self, draft: Draft, chosen: Sequence[Change]) -> Draft:
        """Return the draft with its variables; one that an end does not set is not set."""
        env = dict(self._good)
        for change in chosen:
            env.pop(change.id, None)
            if change.id in self._bad:
                env[change.id] = self._bad[change.id]
        return replace(draft, env=tuple(sorted(env.items())))


class DataAxis:
    """Data at a place in the checkout."""

    is_ordered = False

    def __init__(self, good: EndState, bad: EndState) -> None:
        self._good = {item.link.target: item for item in good.data}
        self._bad = {item.link.target: item for item in bad.data}
        self.changes = tuple(
            Change(ChangeKind.DATA, target, f"{target}: {_say_sources(self._good[target], self._bad[target])}")
            for target in self._good
            if self._good[target].digest != self._bad[target].digest
        )

    def apply(self, draft: Draft, chosen: Sequence[Change]) -> Draft:
        """Return the draft with its data."""
        data = {**self._good, **{change.id: self._bad[change.id] for change in chosen}}
        return replace(draft, data=tuple(data.values()))


class LaunchAxis:
    """Arguments of the training command, and the number of processes."""

    is_ordered = False

    def __init__(self, good: EndState, bad: EndState, *, command: Sequence[str], ranks: int) -> None:
        self._diff = diff_commands(good.command or command, bad.command or command)
        self._ranks = good.ranks or ranks, bad.ranks or ranks
        before, after = self._ranks
        ranks_change = Change(ChangeKind.LAUNCH, RANKS, f"{RANKS}: {before} -> {after}")
        self.changes = (*([ranks_change] if before != after else []), *self._diff.changes)
        self._usual = ranks

    def apply(self, draft: Draft, chosen: Sequence[Change]) -> Draft:
        """Return the draft with its command and ranks."""
        ranks = self._ranks[any(change.id == RANKS for change in chosen)]
        arguments = [change for change in chosen if change.id != RANKS]
        return replace(draft, command=self._diff.render(arguments), ranks=None if ranks == self._usual else ranks)


class InterpreterAxis:
    """The interpreter and the container image, each a change."""

    is_ordered = False

    def __init__(self, good: EndState, bad: EndState, *, launcher: Sequence[str]) -> None:
        self._ends, self._launcher = (good, bad), tuple(launcher)
        found = []
        if (good.python, good.interpreter) != (bad.python, bad.interpreter):
            before, after = (end.interpreter.split(" ")[0] or "the usual one" for end in self._ends)
            found.append(Change(ChangeKind.ENV, PYTHON, f"{PYTHON}: {before} -> {after}", f"{good.python} -> {bad.python}"))
        if good.image != bad.image:
            found.append(Change(ChangeKind.ENV, IMAGE, f"{IMAGE}: {good.image or 'none'} -> {bad.image or 'none'}"))
        self.changes = tuple(found)

    def apply(self, draft: Draft, chosen: Sequence[Change]) -> Draft:
        """Return the draft with its interpreter and its launcher."""
        ids = {change.id for change in chosen}
        python_end, image = self._ends[PYTHON in ids], self._ends[IMAGE in ids].image
        launcher = tuple(part.replace("{image}", image) for part in self._launcher)
        return replace(draft, python=python_end.python, interpreter=python_end.interpreter, launcher=launcher)


def _say_sources(good: DataEnd, bad: DataEnd) -> str:
    """Return where the data of two ends lie, without the folders that both lie in: a title is cut at its end."""
    left, right = Path(good.link.source).parts, Path(bad.link.source).parts
    num_common = next((idx for idx, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), 0)
    first = num_common if num_common > 1 else 0  # below the root nothing is gained
    return f"{Path(*left[first:])} -> {Path(*right[first:])}"


def _say(env: Mapping[str, str], name: str) -> str:
    """Return a variable's value for a title; titles are printed, stored and passed on, so they hold no secrets."""
    if name not in env:
        return "not set"
    if env[name] and is_secret(name):
        return HIDDEN
    return mask_logins(env[name]) or "(empty)"
