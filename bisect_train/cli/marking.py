"""Which version a person means: a commit or a config key of a bisection's changes, never one of its ends."""

from __future__ import annotations

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace
from bisect_train.core.changes import ChangeKind
from bisect_train.core.errors import InputError

ENDS_RULE = "the ends are proved by runs: give another --good or --bad to a new bisection"
MAX_NAMED = 6


def find_version(rev: str, space: ChangeSpace, repository: Repository) -> int:
    """Return the version 1..N-1 whose last change `rev` names: a revision, or the dotted path of a config key.

    Raises:
        RevisionError: an unknown revision.
        InputError: it is one of the ends, or none of the changes; names the range.
    """
    keys = {change.id: idx for idx, change in enumerate(space.changes) if change.kind is not ChangeKind.COMMIT}
    idx = keys[rev] if rev in keys else _index_of_commit(rev, repository.resolve(rev), space)
    if idx + 1 == len(space.changes):
        raise InputError(f"{rev} is the bad end, which cannot be marked", hint=ENDS_RULE)
    return idx + 1


def _index_of_commit(rev: str, commit: str, space: ChangeSpace) -> int:
    commits = space.commits
    if commit in commits.commits:
        return commits.commits.index(commit)
    if commit in (commits.good, commits.base):
        raise InputError(f"{rev} is the good end, which cannot be marked", hint=ENDS_RULE)
    named = commit[:12] if commit.startswith(rev) else f"{rev} ({commit[:12]})"
    if not commits.commits:
        keys = ", ".join(change.id for change in space.changes[:MAX_NAMED])
        raise InputError(f"{named} is no change of this bisection", hint=f"its changes are: {keys}")
    between = f"{commits.good[:12]}..{commits.bad[:12]}"
    raise InputError(
        f"{named} is none of the {len(commits.commits)} candidates of {between}",
        hint=f"`git log --oneline {between}` lists the commits of this range",
    )
