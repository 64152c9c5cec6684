"""A submodule as an axis: the commits of its repository, or the pieces of one of them.

Each state is a commit of the submodule, recorded at its path in the tree. Nothing else of the tree changes.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from bisect_train.changes.axes import Draft
from bisect_train.changes.commit_states import CommitStates
from bisect_train.changes.history import commit_range, single_commit
from bisect_train.changes.hunk_states import HunkStates
from bisect_train.changes.plumbing import Git, decode, printable
from bisect_train.changes.repository import Repository
from bisect_train.changes.submodules import Bump, bump_between
from bisect_train.core.changes import Change, Point, make_point
from bisect_train.core.errors import UnbuildableError
from bisect_train.core.question import Inside, Range

States = CommitStates | HunkStates


class SubmoduleAxis:
    """The commits of a submodule between two, or the pieces of the one commit between them.

    Args:
        inside: path of the submodule, its two commits, the commit that is split, if any.
        source: the submodule's repository.
        first_parent: whether only its main line is followed.

    Attributes:
        path: of the submodule in the checkout.
        changes: its commits, or the pieces.
        is_ordered: whether a change needs those before it: a commit does.
    Raises:
        RevisionError: the two commits are no range.
    """

    def __init__(self, inside: Inside, source: Repository, *, first_parent: bool) -> None:
        self.path = inside.submodule
        self._source = source
        low, high = inside.releases
        self._ends = (low, high)
        self.is_ordered = not inside.commit
        self._commits = commit_range(source, Range((low,), high, first_parent)) if self.is_ordered else single_commit(high)
        self._states = self._states_of(source.git)
        own = self._states.changes if isinstance(self._states, HunkStates) else self._commits.changes
        self.changes = tuple(map(self._place_change, own))
        self._idx = {change.key: idx for idx, change in enumerate(self.changes)}

    def _states_of(self, git: Git) -> States:
        low, high = self._ends
        return CommitStates(self._commits, git) if self.is_ordered else HunkStates(git, parent=low, commit=high)

    def _place_change(self, change: Change) -> Change:
        """Return a change of the submodule as one of the checkout: a piece has its path there."""
        shown = printable(self.path)
        if self.is_ordered:
            return replace(change, detail=f"{change.detail}, in the submodule {shown}")
        title = f"{shown}/{change.title}" if change.title.startswith(change.id) else f"{change.title}, {shown}"
        return replace(change, id=f"{shown}/{change.id}", title=title)

    def apply(self, draft: Draft, chosen: Sequence[Change]) -> Draft:
        """Return the draft with the submodule at the state that holds these changes.

        Raises:
            UnbuildableError: a conflict, or a Python file that does not compile.
        """
        return replace(draft, gitlinks=(*draft.gitlinks, (self.path, self._commit_of(chosen))))

    def is_merge(self, change: Change) -> bool:
        """Return whether a change is a commit that merges others."""
        return self._idx[change.key] in self._commits.merges

    def parents_of(self, change: Change) -> tuple[str, ...]:
        """Return the parents that a commit's own change starts from, () of a piece."""
        return self._commits.parents[self._idx[change.key]] if self.is_ordered else ()

    def bump_of(self, change: Change) -> Bump | None:
        """Return the submodule within this one whose commit is all that a change moves, or None."""
        bump = bump_in(self._states, self._idx[change.key], self._source.git, ends=self._ends)
        return replace(bump, path=f"{self.path}/{bump.path}") if bump else None

    def files_of(self, change: Change) -> tuple[str, ...]:
        """Return the files that a change touches, by their paths in the checkout; () where they cannot be told."""
        if change.key not in self._idx:
            return ()
        idx = self._idx[change.key]
        if isinstance(self._states, HunkStates):
            return (f"{self.path}/{self._states.pieces[idx].path}",)
        try:
            before, after = self._states.delta_of(idx)
        except UnbuildableError:
            return ()
        listed = self._source.git.attempt("diff-tree", "-r", "--name-only", "-z", before, after)
        return tuple(f"{self.path}/{name}" for name in decode(listed.stdout).split("\0") if name)

    def patch_of(self, changes: Sequence[Change]) -> str:
        """Return some pieces as a patch that `git apply` takes at the top of a checkout, onto the parent; "" of commits."""
        if not isinstance(self._states, HunkStates):
            return ""
        pieces = [self._idx[change.key] for change in changes if change.key in self._idx]
        return self._states.patch_of(pieces, folder=self.path)

    def commands_for(self, chosen: Sequence[Change]) -> tuple[str, ...]:
        """Return git commands that bring the submodule, in a clone of what is around it, to the state with these changes."""
        commit, inside = self._commit_of(chosen), f"git -C {shlex.quote(self.path)}"
        if self._source.git.attempt("merge-base", "--is-ancestor", commit, self._ends[1]).returncode == 0:
            return (f"{inside} checkout --detach {commit}",)
        mirror = shlex.quote(str(self._source.mirror))
        return (f"{inside} fetch {mirror} {commit}", f"{inside} checkout --detach FETCH_HEAD")

    def _commit_of(self, chosen: Sequence[Change]) -> str:
        return self._states.state_of(self._point_of(chosen))[0]

    def _point_of(self, chosen: Sequence[Change]) -> Point:
        return make_point(0, plus=tuple(self._idx[change.key] for change in chosen))


def bump_in(states: States, idx: int, git: Git, *, ends: tuple[str, str]) -> Bump | None:
    """Return the submodule whose commit is all that a commit, or a piece of one, moves; or None.

    Args:
        states, idx: the commits or pieces, and which one.
        git: on the mirror that has them.
        ends: commits around the pieces.
    """
    if isinstance(states, HunkStates):
        return bump_between(git, *ends, path=states.pieces[idx].path)
    try:
        before, after = states.delta_of(idx)
    except UnbuildableError:  # a conflict: it does more than that
        return None
    return bump_between(git, before, after)
