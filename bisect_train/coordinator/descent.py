"""Descent into a change that a bisection has named: what inside it did it, as a bisection of its own.

A merge opens into the commits that it brought in, then the merge itself for what its author changed beyond merging; nested
merges are in the same line, so one descent is enough. A commit opens into its files, hunks and config keys; a package into its
releases, and a release into the commits of the package's repository where that is at hand; a commit, or a piece of one, that
moves a submodule into the submodule's commits, and these in turn as those of the repository itself. Each part is tied to the
whole twice: by `part_of` in its question, and by an event of the whole. A part may be looked into in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from bisect_train.changes.hunk_packages import list_of_piece
from bisect_train.changes.packages.releases import releases_between
from bisect_train.changes.packages.tags import revision_of_release
from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.changes.submodules import Bump
from bisect_train.coordinator.event_log import read_events
from bisect_train.coordinator.observing import worked_s
from bisect_train.coordinator.spending import Spending
from bisect_train.core.changes import ChangeKind
from bisect_train.core.errors import InputError, MachineError, RevisionError, UnbuildableError
from bisect_train.core.question import Inside, Limits, Question, Range
from bisect_train.search.terms import Answer
from bisect_train.store.contract import PROBE_FINISHED, Store, StoredEvent

DESCENDED = "descended"
"""Event {child, opened}: the bisection `child` looks into the change `opened` that this one has named."""

NOT_OPENED = "not_opened"
"""Event {opened, reason}: the change `opened` has no inside that could be searched; a clause, or ""."""

MAX_DESCENTS = 3
MIN_PIECES = 4
"""A commit of fewer hunks is read faster than its inside is searched; two config keys, or a submodule, are worth it."""
_PROVED = ("isolated", "several")


class OpeningKind(str, Enum):
    """What is looked into."""

    MERGE = "merge"
    COMMIT = "commit"
    PACKAGE = "package"
    RELEASE = "release"
    SUBMODULE = "submodule"


@dataclass(frozen=True, slots=True)
class Opening:
    """A change that was named by itself and that has an inside.

    Attributes:
        idx, id: its index and id among the changes.
        kind: what is looked into.
        bump: the submodule that it moves, if that is all it does.
    """

    idx: int
    kind: OpeningKind
    id: str
    bump: Bump | None = None


class NothingInsideError(Exception):
    """There is nothing to search inside; the message says why, as a clause, or is "" where nobody would ask."""


def openings(answer: Answer | None, space: ChangeSpace) -> tuple[Opening, ...]:
    """Return the changes, each named by itself, that can be looked into; as the answer ranks them."""
    if answer is None or answer.status not in _PROVED:
        return ()
    alone = [culprit.changes[0] for culprit in answer.culprits if len(culprit.changes) == 1]
    return tuple(opening for idx in alone if (opening := _opening_of(idx, space)) is not None)


def _opening_of(idx: int, space: ChangeSpace) -> Opening | None:
    bump = space.bump_of(idx)
    kind = OpeningKind.SUBMODULE if bump else _kind_of(idx, space)
    return Opening(idx, kind, space.changes[idx].id, bump) if kind else None


def _kind_of(idx: int, space: ChangeSpace) -> OpeningKind | None:
    change, commits = space.changes[idx], space.commits
    if change.kind is ChangeKind.PACKAGE:
        return OpeningKind.RELEASE if space.is_inside_package else OpeningKind.PACKAGE
    if space.submodule is not None:
        if len(space.submodule.parents_of(change)) != 1:
            return None  # a piece, or what a merge's author changed beyond merging
        return OpeningKind.MERGE if space.submodule.is_merge(change) else OpeningKind.COMMIT
    if change.kind is not ChangeKind.COMMIT or idx >= len(commits.commits) or len(commits.parents[idx]) > 1:
        return None  # a package's commit, or what a merge's author changed beyond merging
    return OpeningKind.MERGE if idx in commits.merges else OpeningKind.COMMIT


def look_inside(
    question: Question, space: ChangeSpace, opening: Opening, *, repository: Repository, part_of: str, limits: Limits
) -> tuple[Question, ChangeSpace]:
    """Return the question about the inside of a change, and its changes.

    Args:
        question, space: of the bisection that named it.
        opening: one of `openings`.
        repository: the user's.
        part_of: id of that bisection.
        limits: with what is left of the budget.
    Raises:
        NothingInsideError: it has no inside that is worth a search, or it cannot be read.
    """
    # it was named where every earlier change was applied and no later one: so it is, in each state of the part
    earlier, later = space.changes[: opening.idx], space.changes[opening.idx + 1 :]
    common = replace(
        question,
        kind="run",
        ladder=(),  # it was named on this rung
        num_earlier_attempts=0,
        golden=(),  # of the whole's good end, which is none of the part's
        expected=(),
        limits=limits,
        part_of=part_of,
        only=(),
        exclude=(*(change.key for change in space.held), *(change.key for change in earlier)),
        left_out=(*question.left_out, *(change.key for change in later)),
    )
    make = {
        OpeningKind.MERGE: _inside_merge,
        OpeningKind.COMMIT: _inside_commit,
        OpeningKind.PACKAGE: _inside_package,
        OpeningKind.RELEASE: _inside_release,
        OpeningKind.SUBMODULE: _inside_submodule,
    }[opening.kind]
    try:
        return make(common, space, opening, repository)
    except (RevisionError, UnbuildableError, InputError, MachineError) as error:
        raise NothingInsideError(error.message) from error


def _inside_merge(
    question: Question, space: ChangeSpace, opening: Opening, repository: Repository
) -> tuple[Question, ChangeSpace]:
    if space.submodule is not None:
        return _within_submodule(question, space, opening, repository)
    asked, first_parent = question.range, space.commits.parents[opening.idx][0]
    skips = tuple(commit for commit in asked.skips if commit != opening.id)
    branch = Range((first_parent,), opening.id, False, asked.paths, skips, asked.descend)
    inside = replace(question, range=branch)
    try:
        opened = build_space(repository, inside)
    except RevisionError:
        if not asked.paths:
            raise
        # no commit of this branch touches the paths: that tells nothing about any of them
        inside = replace(inside, range=replace(branch, paths=()))
        opened = build_space(repository, inside)
    _check_branch(opened)
    return inside, opened


def _check_branch(opened: ChangeSpace) -> None:
    if len(opened.changes) < 2:
        raise NothingInsideError("that brings in no commit of its own: what its author changed is all there is")


def _inside_commit(
    question: Question, space: ChangeSpace, opening: Opening, repository: Repository
) -> tuple[Question, ChangeSpace]:
    if space.submodule is not None:
        return _within_submodule(question, space, opening, repository)
    parent = space.commits.parents[opening.idx][0]
    one = Range((parent,), opening.id, descend=question.range.descend)
    inside = replace(question, range=one, inside=Inside(commit=opening.id), priors=())
    opened = build_space(repository, inside)
    _check_pieces(opened, question.settings.environment.files)
    return inside, opened


def _check_pieces(opened: ChangeSpace, followed: tuple[str, ...] = ()) -> None:
    """Raise where a commit is read faster than its pieces are searched: keys, and packages that are laid, are worth it."""
    num = len(opened.changes)
    is_worth = (change.kind is ChangeKind.CONFIG or list_of_piece(change) in followed for change in opened.changes)
    num_keys = sum(is_worth)
    if num < MIN_PIECES and num_keys < 2 and (num < 2 or not any(map(opened.bump_of, range(num)))):
        raise NothingInsideError("")


def _inside_submodule(
    question: Question, space: ChangeSpace, opening: Opening, repository: Repository
) -> tuple[Question, ChangeSpace]:
    bump = opening.bump
    if bump is None:
        raise NothingInsideError("")
    base = space.commit_through(opening.idx)
    source = space.source_of(bump, commit=base)
    _check_line(source, bump)
    inside = Inside(submodule=bump.path, releases=(bump.low, bump.high), package_repo=str(source.common_dir))
    asked = replace(question, range=Range((base,), base, descend=question.range.descend), inside=inside, priors=())
    opened = build_space(repository, asked)
    return _inside_one(asked, opened, repository) if len(opened.changes) == 1 else (asked, opened)


def _check_line(source: Repository, bump: Bump) -> None:
    """Raise where the second commit of a submodule is not built on the first."""
    low, high, git = bump.low, bump.high, source.git
    if git.succeeds("merge-base", "--is-ancestor", low, high):
        return
    if git.succeeds("merge-base", "--is-ancestor", high, low):
        raise NothingInsideError(f"it goes back, {high[:8]} is an ancestor of {low[:8]}")
    if source.shallow:
        raise NothingInsideError(
            "its history is cut off in a shallow clone (git fetch --unshallow in the submodule, or "
            f"--package-repo {bump.path}=DIR names a whole clone)"
        )
    raise NothingInsideError(f"{high[:8]} is not built on {low[:8]} (rebased, or another branch)")


def _inside_one(question: Question, opened: ChangeSpace, repository: Repository) -> tuple[Question, ChangeSpace]:
    """Return the question about the inside of the one commit between two: it needs no search."""
    opening, (only,) = _opening_of(0, opened), opened.changes
    reason = f'its one commit is {only.id[:8]} "{only.title}"'
    if opening is None:
        raise NothingInsideError(reason)
    make = _inside_submodule if opening.kind is OpeningKind.SUBMODULE else _within_submodule
    try:
        return make(question, opened, opening, repository)
    except NothingInsideError as error:
        raise NothingInsideError(f"{reason}; {error}" if str(error) else reason) from error


def _within_submodule(
    question: Question, space: ChangeSpace, opening: Opening, repository: Repository
) -> tuple[Question, ChangeSpace]:
    """Return the question about the branch of a submodule's merge, or about the pieces of a submodule's commit."""
    change, axis = space.changes[opening.idx], space.submodule
    if axis is None:
        raise NothingInsideError("")
    is_merge = opening.kind is OpeningKind.MERGE
    releases = (axis.parents_of(change)[0], change.id)
    inside = replace(question.inside, releases=releases, commit="" if is_merge else change.id)
    asked = replace(question, range=replace(question.range, first_parent=not is_merge), inside=inside, priors=())
    opened = build_space(repository, asked)
    (_check_branch if is_merge else _check_pieces)(opened)
    return asked, opened


def _inside_package(
    question: Question, space: ChangeSpace, opening: Opening, repository: Repository
) -> tuple[Question, ChangeSpace]:
    low, high = space.versions_of(opening.idx)
    if not low or not high:
        raise NothingInsideError("that is not between two releases")
    environment = question.settings.environment
    between = releases_between(
        opening.id,
        low,
        high,
        find_links=environment.find_links,
        index=environment.index,
        python=question.settings.python,
    )
    commit = question.range.bad
    asked = replace(
        question,
        range=Range((commit,), commit, descend=question.range.descend),
        left_out=(*question.left_out, space.changes[opening.idx].key),
        priors=(),
    )
    if len(between) < 2:
        return _package_commits(asked, repository, name=opening.id, low=low, high=high)
    inside = replace(asked, inside=Inside(package=opening.id, releases=(low, *between)))
    return inside, build_space(repository, inside)


def _inside_release(
    question: Question, space: ChangeSpace, opening: Opening, repository: Repository
) -> tuple[Question, ChangeSpace]:
    name, (low, high) = question.inside.package, space.versions_of(opening.idx)
    asked = replace(question, exclude=_without_steps(question.exclude, name), left_out=_without_steps(question.left_out, name))
    return _package_commits(asked, repository, name=name, low=low, high=high)


def _without_steps(keys: Sequence[str], name: str) -> tuple[str, ...]:
    """Return keys without the steps from release to release, which the next question does not have."""
    return tuple(key for key in keys if not key.startswith(f"{ChangeKind.PACKAGE.value}:{name} "))


def _package_commits(
    question: Question, repository: Repository, *, name: str, low: str, high: str
) -> tuple[Question, ChangeSpace]:
    folder = dict(question.package_repos).get(name)
    if folder is None:
        raise NothingInsideError(f"--package-repo {name}=DIR says where its commits are")
    source = Repository.open(Path(folder), home=repository.home)
    revisions = tuple(revision_of_release(source, name, version) for version in (low, high))
    inside = replace(question, inside=Inside(package=name, releases=revisions, package_repo=folder))
    return inside, build_space(repository, inside)


def limits_left(store: Store, question: Question, ids: Sequence[str]) -> Limits:
    """Return a question's limits less what some bisections have used of them; 0 of what is spent."""
    limits = question.limits
    spending = Spending(question.gpus_of_probe)
    num_probes, used_s = 0, 0.0
    for name in ids:
        events = read_events(store, name)
        used_s += worked_s(events)
        num_probes += sum(event.kind == PROBE_FINISHED for event in events)
        if limits.gpu_hours is not None:
            spending.load(events, store.results(name))
    return replace(
        limits,
        max_probes=None if limits.max_probes is None else max(0, limits.max_probes - num_probes),
        gpu_hours=None if limits.gpu_hours is None else max(0.0, limits.gpu_hours - spending.hours),
        wall_s=None if limits.wall_s is None else max(0.0, limits.wall_s - used_s),
    )


def children_of(events: Sequence[StoredEvent]) -> dict[str, str]:
    """Return the ids of the parts of a bisection by the changes they look into, given the events of the whole."""
    return {event.data["opened"]: event.data["child"] for event in events if event.kind == DESCENDED}


def unopened_of(events: Sequence[StoredEvent]) -> dict[str, str]:
    """Return why changes were not looked into, by their ids, as it was last found."""
    return {event.data["opened"]: event.data["reason"] for event in events if event.kind == NOT_OPENED}


def ask_inside(store: Store, question: Question, opening: Opening) -> str:
    """Store the question about the inside of a change beside the bisection that named it; return the id of the part."""
    whole = question.part_of
    shown = opening.id[:8] if opening.kind in (OpeningKind.MERGE, OpeningKind.COMMIT) else opening.id
    shown = question.inside.submodule if opening.kind is OpeningKind.SUBMODULE else shown
    title = f"inside {opening.kind.value} {shown} of {whole}"
    child = _orphan(store, question) or store.create(question.to_json(), title=title)
    store.append(whole, DESCENDED, {"child": child, "opened": opening.id})
    return child


def _orphan(store: Store, question: Question) -> str | None:
    """Return the part that was stored, but not noted in the whole, before the coordinator was killed."""
    for stored in store.list():
        asked = stored.question
        if asked.get("part_of") == question.part_of:
            earlier = Question.of_json(asked)
            if (earlier.range.bad, earlier.inside) == (question.range.bad, question.inside):
                return stored.id
    return None
