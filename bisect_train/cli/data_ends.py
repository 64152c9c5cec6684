"""The data of the two ends, from `--good-data` and `--bad-data`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from bisect_train.changes.data import digest_path, digest_source
from bisect_train.changes.repository import Repository
from bisect_train.cli.asked import Asked
from bisect_train.cli.finding import find_recipe
from bisect_train.core.changes import DataLink
from bisect_train.core.errors import InputError
from bisect_train.core.question import DataEnd, Range
from bisect_train.recipe.wire import inside_checkout


def data_ends(asked: Asked, links: Sequence[DataLink]) -> tuple[tuple[DataEnd, ...], tuple[DataEnd, ...]]:
    """Return each end's data, by the order of their targets. Raises InputError."""
    common = {link.target: link.source for link in links}
    options = asked.option("good", "data"), asked.option("bad", "data")
    given = [_sources_of(option, texts) for option, texts in zip(options, (asked.good_data, asked.bad_data), strict=True)]
    targets = sorted({*given[0], *given[1]})
    _check_apart(targets, [*targets, *common])
    ends: list[list[DataEnd]] = [[], []]
    for target in targets:
        for end, sources, option in zip(ends, given, options, strict=True):
            source = sources.get(target) or common.get(target)
            if source is None:
                hint = f"give {option} {target}=PATH, or link {target} in the recipe"
                raise InputError(f"the data of only one end are known for {target}", hint=hint)
            link = DataLink(source, target)
            end.append(DataEnd(link, digest_source(link) if link.is_remote else digest_given(option, Path(source))))
    return tuple(ends[0]), tuple(ends[1])


def _check_apart(targets: Sequence[str], places: Sequence[str]) -> None:
    """Raise InputError where a target lies in another place that is linked."""
    for target in targets:
        for other in places:
            outer, inner = sorted((target, other), key=len)
            if inner.startswith(f"{outer}/"):
                raise InputError(
                    f"two links share a place in the checkout: {target} and {other}",
                    hint="link the outer one, or each inner one",
                )


def check_untracked(targets: Sequence[str], repository: Repository, commits: Range) -> None:
    """Raise InputError where data are to be linked at a place that an end's commit has files at: a checkout has them there."""
    for commit in (*commits.goods, commits.bad):
        for target in targets:
            if found := repository.tracked_at(commit, target):
                raise InputError(
                    f"data cannot be linked at {target}: commit {commit[:12]} tracks {found}",
                    hint="link them at a place that git does not track at either end",
                )


def snapshot_without_data(asked: Asked, repository: Repository) -> str:
    """Return the commit of the working tree, without untracked files where the recipe or an option links data."""
    recipe = find_recipe(asked, repository.root)
    linked = {link.target for part in (recipe.data, *(when.data for when in recipe.whens)) for link in part.links}
    given = [PurePosixPath(text.partition("=")[0]) for text in (*asked.good_data, *asked.bad_data)]
    inside = {path.as_posix() for path in given if path.parts and not path.is_absolute() and ".." not in path.parts}
    return repository.snapshot_worktree(exclude=tuple(sorted(linked | inside)))


def digest_given(option: str, path: Path) -> str:
    """Return the digest of a file or folder that an option, or the recipe in its place, names."""
    if not os.path.lexists(path):
        raise InputError(f"{path}: there is no such file or folder", hint=f"correct {option}, or what the recipe has for it")
    return digest_path(path)


def _sources_of(option: str, texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        target, equals, source = text.partition("=")
        if not equals or not source or not target:
            raise InputError(f"{option} {text}: this is not TARGET=PATH", hint=f"for example {option} data/corpus=/data/v2")
        try:
            place = inside_checkout(PurePosixPath(target).as_posix())
        except ValueError as error:
            raise InputError(f"{option} {text}: {error}", hint="the target is a path in the checkout") from None
        if place in found:
            raise InputError(f"{option} {text}: {place} was given before", hint="give each place once")
        found[place] = str(Path(source).expanduser().absolute())
    return found
