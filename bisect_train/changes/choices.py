"""Which `when:` blocks of a recipe hold for a state: asked of git objects, nothing is checked out.

What a tree holds is known by the names of its blobs, so a file is read once for all the commits that have the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

from bisect_train.changes.axes import OVERRIDES, Draft
from bisect_train.changes.history import CommitRange
from bisect_train.changes.plumbing import Git, decode
from bisect_train.core.changes import GOOD_END, Point
from bisect_train.core.question import DataEnd, Question
from bisect_train.core.when import Choice, When, choose


class Choices:
    """Looks up what a recipe says for a state; remembers what it has read.

    Args:
        git: on our mirror.
        whens: the blocks.
    """

    def __init__(self, git: Git, whens: Sequence[When]) -> None:
        self._git, self._whens = git, tuple(whens)
        self._paths = tuple(dict.fromkeys(path for when in whens for path in when.paths))
        self._blobs: dict[str, dict[str, str]] = {}
        self._texts: dict[str, str | None] = {}

    def __bool__(self) -> bool:
        return bool(self._whens)

    def load(self, trees: Sequence[str]) -> None:
        """Look up what trees (or commits) have at the paths of the conditions, in one git command."""
        missing = [tree for tree in dict.fromkeys(trees) if tree not in self._blobs]
        if not missing or not self._paths:
            return
        asked = [(tree, path) for tree in missing for path in self._paths]
        lines = "".join(f"{tree}:{path}\n" for tree, path in asked).encode()
        listed = decode(self._git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=lines)).splitlines()
        for (tree, path), line in zip(asked, listed, strict=True):
            name, _, kind = line.rpartition(" ")
            self._blobs.setdefault(tree, {})[path] = "" if kind == "missing" else name

    def at(self, tree: str, has: Callable[[str], bool]) -> Choice:
        """Return what the recipe says for a state.

        Args:
            tree: the state's tree, or a commit that has it.
            has: whether the state has a commit.
        """
        if not self._whens:
            return Choice()
        self.load([tree])
        blobs = self._blobs.get(tree, {})

        def read(path: str) -> str | None:
            return self._read(blobs.get(path, ""))

        return choose(
            when for when in self._whens if when.holds(has=has, is_there=lambda path: bool(blobs.get(path)), read=read)
        )

    def _read(self, blob: str) -> str | None:
        if blob and blob not in self._texts:
            found = self._git.attempt("cat-file", "blob", blob)
            self._texts[blob] = found.stdout.decode(errors="replace") if found.returncode == 0 else None
        return self._texts.get(blob)


def is_ancestor(git: Git, ancestor: str, commit: str) -> bool:
    """Return whether a commit is, or descends from, another."""
    return git.attempt("merge-base", "--is-ancestor", ancestor, commit).returncode == 0


class Membership:
    """Tells which commits a set of a range's commits has, the user's own or synthetic; remembers what it has asked.

    Args:
        git: on our mirror.
        commits: the range.
        split: commit whose pieces are the changes, "" where the commits are.
        num_pieces: of that commit.
    """

    def __init__(self, git: Git, commits: CommitRange, *, split: str = "", num_pieces: int = 0) -> None:
        self._git, self._commits, self._split, self._num_pieces = git, commits, split, num_pieces
        self._place = {commit: idx for idx, commit in enumerate(commits.commits)}
        self._known: dict[tuple[str, str], bool] = {}

    def has(self, point: Point, revision: str) -> bool:
        """Return whether a canonical set has a commit: below its start, or below a commit that the set holds.

        A set that lacks some pieces of a split commit has not got that commit.
        """
        commits = self._commits
        if point == GOOD_END:
            return self._descends(commits.good, revision)
        if self._descends(commits.base, revision):
            return True
        if self._split:
            return point == Point(self._num_pieces) and self._descends(self._split, revision)
        if not self._descends(commits.bad, revision):
            return False
        first = self._place.get(revision)
        if first is None:  # on a branch that one of them merged: all of the main line from there on descends from it
            first = bisect_left(commits.commits, True, key=lambda commit: self._descends(commit, revision))
        return point.holds(first)

    def _descends(self, commit: str, revision: str) -> bool:
        if (commit, revision) not in self._known:
            self._known[commit, revision] = is_ancestor(self._git, revision, commit)
        return self._known[commit, revision]


def with_choice(draft: Draft, choice: Choice, question: Question) -> Draft:
    """Return the draft of a state with what the recipe says for it; what differs between the ends stays as it is."""
    command: list[str] = []
    for part in choice.command:
        command += [*question.rung.overrides, part] if part == OVERRIDES else [part]
    own, common, targets = dict(draft.env), dict(question.env), {item.link.target for item in draft.data}
    env = {**own, **{name: value for name, value in choice.env if own.get(name) == common.get(name)}}
    data = [DataEnd(link, digest) for link, digest in choice.data if link.target not in targets]
    return replace(draft, command=tuple(command) or draft.command, env=tuple(sorted(env.items())), data=(*draft.data, *data))
