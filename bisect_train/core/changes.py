"""Changes, points (sets of changes) and variants (what a set of changes gives when applied to good).

A bisection orders its N changes in one list that respects every dependency between them. A set of changes is written as a
`Point`: a prefix of that list, plus some later changes, minus some earlier ones. Prefixes are what the search visits; the
other points are needed to confirm an answer and to find partners.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from enum import Enum


class ChangeKind(str, Enum):
    """What kind of difference a change is."""

    COMMIT = "commit"
    CONFIG = "config"
    PACKAGE = "package"
    ENV = "env"
    LAUNCH = "launch"
    DATA = "data"
    HUNK = "hunk"


@dataclass(frozen=True, slots=True)
class Change:
    """The smallest difference that can be applied or left out.

    Attributes:
        kind: commit, config key, package ...
        id: 40 hex digits of a commit, dotted path of a config key, name of a package.
        title: one line for a person (a commit's subject, `key: old -> new`).
        detail: author and date of a commit, or "".
    """

    kind: ChangeKind
    id: str
    title: str
    detail: str = ""

    @property
    def key(self) -> str:
        """Kind and id, `config:optimizer.lr`; ids of different kinds may be the same."""
        return f"{self.kind.value}:{self.id}"


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """A set of changes: the first `prefix` changes, plus the indices `plus`, minus the indices `minus`.

    Use `make_point`, which brings equal sets to one form.
    """

    prefix: int
    plus: tuple[int, ...] = ()
    minus: tuple[int, ...] = ()

    def holds(self, idx: int) -> bool:
        """Return whether change `idx` (0-based) is in the set."""
        return (idx < self.prefix and idx not in self.minus) or idx in self.plus

    @property
    def is_prefix(self) -> bool:
        """Whether the set is a plain prefix of the list of changes."""
        return not self.plus and not self.minus

    def to_text(self) -> str:
        """Return a short stable text such as `12`, `0+3`, `20-3`, or `good` for `GOOD_END`."""
        if self.prefix < 0:
            return "good"
        return f"{self.prefix}" + "".join(f"+{i}" for i in self.plus) + "".join(f"-{i}" for i in self.minus)


GOOD_END = Point(-1)
"""The good end as it was given, where it is not the start of the chain (neither end is an ancestor of the other)."""


def make_point(prefix: int, *, plus: tuple[int, ...] = (), minus: tuple[int, ...] = ()) -> Point:
    """Return the canonical Point of a set of changes: as long a prefix as the set allows, then exceptions."""
    extra = {i for i in plus if i >= prefix}
    missing = {i for i in minus if i < prefix}
    while prefix in extra:
        extra.discard(prefix)
        prefix += 1
    while prefix - 1 in missing:
        missing.discard(prefix - 1)
        prefix -= 1
    return Point(prefix, tuple(sorted(extra)), tuple(sorted(missing)))


def point_of_text(text: str) -> Point:
    """Return the Point that `Point.to_text` wrote."""
    if text == "good":
        return GOOD_END
    head = text.replace("-", "+-").split("+")
    numbers = [int(part) for part in head[1:] if not part.startswith("-")]
    minus = [int(part[1:]) for part in head[1:] if part.startswith("-")]
    return Point(int(head[0]), tuple(numbers), tuple(minus))


@dataclass(frozen=True, slots=True)
class FilePatch:
    """A file that a variant brings with it (a generated config), delivered to the probe's own folder.

    Attributes:
        name: file name without folders.
        text: content, UTF-8.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Subtree:
    """A submodule's tree at its path in the checkout."""

    path: str
    tree: str


@dataclass(frozen=True, slots=True)
class DataLink:
    """Untracked data that each checkout needs: absolute source on the machine, or an address; target path in the checkout."""

    source: str
    target: str

    @property
    def is_remote(self) -> bool:
        """Whether the source is an address such as `s3://bucket/corpus`, which each node fetches."""
        return re.match(r"[a-z][a-z0-9+.:-]*://", self.source) is not None


@dataclass(frozen=True, slots=True)
class Variant:
    """The content-addressed state that one probe runs.

    Attributes:
        tree: 40 hex digits of the git tree that is checked out.
        commit: commit that HEAD shows in the checkout (not part of the identity).
        command: the training command; placeholders such as {config} and {ranks} are still open.
        config: the generated config file for `{config}`, or None when the config travels with the tree.
        config_path: path in the tree that `{config}` stands for when `config` is None, or "".
        subtrees: submodules at their recorded trees.
        env: environment variables that the variant sets.
        data: digest of the linked data, "" without any.
        packages: exact requirements (`toyopt==2.0`) that lie before the inherited environment, by name.
        links: data of its own; each takes the place of a link of the settings with the same target.
        ranks: processes of a probe, where the variant says so; None takes the rung's.
        python: absolute path of the interpreter, where the variant says so; "" takes the settings'.
        launcher: arguments that stand before the whole command, such as those that start a container.
        interpreter: digest of what `python` has installed, "" with the settings' interpreter.
        patterns: (name, pattern) of metrics whose lines this variant prints in its own way.
    """

    tree: str
    commit: str
    command: tuple[str, ...]
    config: FilePatch | None = None
    config_path: str = ""
    subtrees: tuple[Subtree, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    data: str = ""
    packages: tuple[str, ...] = ()
    links: tuple[DataLink, ...] = ()
    ranks: int | None = None
    python: str = ""
    launcher: tuple[str, ...] = ()
    interpreter: str = ""
    patterns: tuple[tuple[str, str], ...] = ()
    id: str = field(init=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", _digest_variant(self))


def _digest_variant(variant: Variant) -> str:
    config = [variant.config.name, variant.config.text] if variant.config else None
    parts = [
        variant.tree,
        list(variant.command),
        config,
        variant.config_path,
        [[sub.path, sub.tree] for sub in variant.subtrees],
        [list(pair) for pair in variant.env],
        variant.data,
    ]
    # where data lie is no part of what they are: `data` is the digest of their content
    more = {
        "packages": list(variant.packages),
        "ranks": variant.ranks,
        "python": variant.python,
        "launcher": list(variant.launcher),
        "interpreter": variant.interpreter,
        **({"patterns": [list(pair) for pair in variant.patterns]} if variant.patterns else {}),
    }
    return digest_of([*parts, more] if any(more.values()) else parts)


def digest_of(value: object) -> str:
    """Return 16 hex digits that identify a JSON-able value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
