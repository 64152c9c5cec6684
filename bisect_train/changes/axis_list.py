"""Which axes a question has: everything but commits that differs between its ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bisect_train.changes.axes import (
    OVERRIDES,
    Axis,
    ConfigAxis,
    DataAxis,
    EnvAxis,
    InterpreterAxis,
    LaunchAxis,
    TreeConfigAxis,
)
from bisect_train.changes.config import diff_configs
from bisect_train.changes.history import commit_range
from bisect_train.changes.hydra_axis import HydraAxis
from bisect_train.changes.package_axis import PackageAxis, PackageCommitAxis, ReleaseAxis
from bisect_train.changes.repository import Repository
from bisect_train.changes.submodule_axis import SubmoduleAxis
from bisect_train.changes.submodules import open_source
from bisect_train.core.errors import InputError
from bisect_train.core.question import ConfigHold, Question, Range


def free_axes(repository: Repository, question: Question) -> tuple[Axis, ...]:
    """Return what differs between a question's ends beside commits, in the order in which it is searched.

    Raises:
        RecipeError: a config file or a list of packages cannot be used.
        InputError: a name to exclude that is no change.
    """
    axes = tuple(_axes(repository, question))
    known = {name for axis in axes for change in axis.changes for name in (change.id, change.key)}
    for name in question.exclude:
        if name not in known and not question.part_of:
            shown = ", ".join(sorted(change.id for axis in axes for change in axis.changes)[:10]) or "none"
            raise InputError(f"--exclude {name}: no such change differs between the ends", hint=f"changes: {shown}")
    return axes


def _axes(repository: Repository, question: Question) -> Iterator[Axis]:
    good, bad = question.good_state, question.bad_state
    inside = question.inside
    yield PackageAxis(good.packages, bad.packages, is_whole=question.settings.environment.mode == "uv")
    if inside.submodule:
        source = open_source(Path(inside.package_repo), home=repository.home)
        yield SubmoduleAxis(inside, source, first_parent=question.range.first_parent)
    elif inside.package_repo:
        yield _package_commits(repository, question)
    elif inside.package:
        yield ReleaseAxis(inside.package, inside.releases)
    yield DataAxis(good, bad)
    yield EnvAxis(good, bad, common=question.env)
    yield InterpreterAxis(good, bad, launcher=question.launcher)
    yield LaunchAxis(good, bad, command=question.command, ranks=question.rung.ranks)
    yield from _config_axes(question)
    if question.hydra_dir:
        commit, home = question.range.bad, repository.home / "hydra"
        yield HydraAxis(repository.git, commit=commit, folder=question.hydra_dir, good=good, bad=bad, home=home)


def _package_commits(repository: Repository, question: Question) -> PackageCommitAxis:
    inside = question.inside
    source = Repository.open(Path(inside.package_repo), home=repository.home)
    low, high = (source.resolve(revision) for revision in inside.releases)
    commits = commit_range(source, Range((low,), high))
    return PackageCommitAxis(inside.package, commits, source, python=question.settings.python)


def _config_axes(question: Question) -> Iterator[Axis]:
    if not question.good_config or not question.bad_config:
        return
    if question.hold is ConfigHold.TRAVEL:
        override = question.override if OVERRIDES in question.command else ""
        yield ConfigAxis(diff_configs(question.good_config, question.bad_config, override=override))
    else:
        yield TreeConfigAxis(diff_configs(question.good_config, question.bad_config), question.config_path)
