"""From a set of commits of a range to the commit and tree that hold it, and the git commands that give a person the same."""

from __future__ import annotations

from bisect_train.changes.history import CommitRange
from bisect_train.changes.merge import Merger
from bisect_train.changes.plumbing import Git
from bisect_train.changes.worktree import write_commit
from bisect_train.core.changes import Point


class CommitStates:
    """States of a range's commits.

    Args:
        commits: the range.
        git: on our mirror.
    """

    def __init__(self, commits: CommitRange, git: Git) -> None:
        self._range = commits
        self._git = git
        self._merger = Merger(git)

    def tree_of(self, commit: str) -> str:
        """Return a commit's tree."""
        return self._merger.tree_of(commit)

    def state_of(self, point: Point) -> tuple[str, str]:
        """Return the commit and the tree of a canonical point over the range's commits.

        A prefix is a commit of the user's where there is one. Otherwise changes are left out, the latest first, then
        added, the earliest first, and a synthetic commit without parents holds the result.

        Raises:
            UnbuildableError: a conflict, or a missing object.
        """
        commit = self._merger.state_of(self._heads_of(point.prefix))
        tree = start = self.tree_of(commit)
        for idx in reversed(point.minus):
            before, after = self.delta_of(idx)
            what = f"{self._name_of(idx)} cannot be left out"
            tree = self._merger.pick(tree, before=after, after=before, what=what)
        for idx in point.plus:
            before, after = self.delta_of(idx)
            what = f"{self._name_of(idx)} cannot be added"
            tree = self._merger.pick(tree, before=before, after=after, what=what)
        if tree == start:
            return commit, tree
        message = f"bisect-train: {point.to_text()} of {self._range.base[:12]}..{self._range.bad[:12]}"
        return write_commit(self._git, tree, message=message), tree

    def commands_for(self, point: Point) -> tuple[str, ...]:
        """Return git commands that give the same tree in a clone of the user's repository; () where a checkout does.

        A merge's own change, beyond what it brought in, has no command: () for sets that add or leave out one.
        """
        if any(len(self._range.parents[idx]) > 1 for idx in (*point.plus, *point.minus)):
            return ()
        if point.is_prefix and len(self._heads_of(point.prefix)) == 1:
            return ()
        first, *others = self._heads_of(point.prefix)
        commands = [f"git checkout --detach {first}"]
        commands += [f"git merge --no-edit {head}" for head in others]
        commands += [f"git revert --no-commit {self._mainline(idx)}" for idx in reversed(point.minus)]
        commands += [f"git cherry-pick --no-commit {self._mainline(idx)}" for idx in point.plus]
        return tuple(commands)

    def _heads_of(self, prefix: int) -> tuple[str, ...]:
        return self._range.heads[prefix - 1] if prefix else (self._range.base,)

    def delta_of(self, idx: int) -> tuple[str, str]:
        """Return the trees before and after a commit's own change."""
        return self._merger.before_of(self._range.parents[idx]), self.tree_of(self._range.commits[idx])

    def _name_of(self, idx: int) -> str:
        return f"{self._range.commits[idx][:12]} ({self._range.changes[idx].title})"

    def _mainline(self, idx: int) -> str:
        """Return the arguments that name a commit to revert or cherry-pick: a merge needs to be told its main line."""
        commit = self._range.commits[idx]
        parents = self._git.text("rev-list", "--parents", "--no-walk", commit).split()[1:]
        return f"-m 1 {commit}" if len(parents) > 1 else commit
