"""What a reader must know about `--fixup`: which states had the patch, and where it may be a part of the difference itself."""

from __future__ import annotations

from collections.abc import Iterable

from bisect_train.changes.space import ChangeSpace
from bisect_train.core.changes import Point, make_point
from bisect_train.core.errors import UnbuildableError
from bisect_train.report.words import short_id
from bisect_train.search.terms import Plan


def warn_of_fixups(plan: Plan, space: ChangeSpace, points: Iterable[Point]) -> tuple[str, ...]:
    """Return for each patch how many of the states that were run had it, and each culprit that it stops or begins at.

    Args:
        plan: with the answer, if there is one.
        space: the changes.
        points: sets of changes that were run.
    """
    if not space.fixups:
        return ()
    flags = [found for point in dict.fromkeys(points) if (found := _fixups_at(space, point)) is not None]
    told = [
        f"--fixup {path} was applied to {sum(found[idx] for found in flags)} of {len(flags)} states that were run"
        for idx, path in enumerate(space.fixups)
    ]
    culprits = plan.answer.culprits if plan.answer else ()
    for change_idx in dict.fromkeys(idx for culprit in culprits for idx in culprit.changes):
        told += _warn_at(space, change_idx)
    return tuple(told)


def _warn_at(space: ChangeSpace, change_idx: int) -> list[str]:
    before, after = (_fixups_at(space, make_point(prefix)) for prefix in (change_idx, change_idx + 1))
    if before is None or after is None:
        return []
    name = short_id(space.changes[change_idx])
    return [
        f"--fixup {path} is in the state {'before' if before[idx] else 'with'} {name} and not in the one "
        f"{'with' if before[idx] else 'before'} it: what the patch does is a part of their difference"
        for idx, path in enumerate(space.fixups)
        if before[idx] != after[idx]
    ]


def _fixups_at(space: ChangeSpace, point: Point) -> tuple[bool, ...] | None:
    try:
        return space.fixups_at(point)
    except UnbuildableError:
        return None
