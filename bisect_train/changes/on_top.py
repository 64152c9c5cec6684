"""A commit with changes of later commits on top, which nobody committed: written to our mirror."""

from __future__ import annotations

from collections.abc import Sequence

from bisect_train.changes.merge import Merger
from bisect_train.changes.plumbing import EMPTY_TREE
from bisect_train.changes.repository import Repository
from bisect_train.changes.worktree import write_commit


def put_on_top(repository: Repository, commit: str, changes: Sequence[str]) -> str:
    """Return a commit with the changes of others applied to it, in this order; the same arguments give the same one.

    Args:
        repository: the user's.
        commit: that is changed.
        changes: commits; of a merge what it brought into its main line.
    Raises:
        UnbuildableError: a conflict, or a missing object.
    """
    merger = Merger(repository.git)
    tree = merger.tree_of(commit)
    for change in changes:
        parents = repository.git.text("rev-list", "--parents", "--no-walk", change, "--").split()[1:]
        before = merger.tree_of(parents[0]) if parents else EMPTY_TREE
        what = f"{change[:12]} cannot be put on top of {commit[:12]}"
        tree = merger.pick(tree, before=before, after=merger.tree_of(change), what=what)
    message = f"bisect-train: {commit[:12]} with {', '.join(change[:12] for change in changes)}"
    return write_commit(repository.git, tree, message=message, parents=(commit,))


def step_to(repository: Repository, good: str, bad: str) -> str:
    """Return a commit with the tree of `bad` whose parent is `good`: two states that no history connects become a range."""
    tree = Merger(repository.git).tree_of(bad)
    return write_commit(repository.git, tree, message=f"bisect-train: from {good[:12]} to {bad[:12]}", parents=(good,))
