"""Runs one or two probes from the terminal, for `probe` and `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import rich_click as click

from bisect_train.changes.fixup import add_uses, refuse_unused
from bisect_train.changes.package_axis import pins_of
from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.cli.asked import Asked
from bisect_train.cli.desk import Desk
from bisect_train.cli.driving import open_executor
from bisect_train.cli.environments import installed_packages
from bisect_train.coordinator import SingleProbe, run_singles
from bisect_train.core.changes import Point
from bisect_train.core.errors import InterruptedByUser
from bisect_train.core.executor import ProbeProgress
from bisect_train.core.probe import ProbeResult
from bisect_train.core.question import Question


@dataclass(frozen=True, slots=True)
class OneEnd:
    """A question about one commit, and whether its bad end is run, which has all changes, or its good one."""

    question: Question
    is_bad: bool = False


def with_one_end(asked: Asked, *, env: tuple[Path, ...], data: tuple[str, ...], hydra: str | None, image: str) -> Asked:
    """Return options in which both ends are what one variant was given."""
    return replace(
        asked,
        is_single=True,
        good_env=env,
        bad_env=env,
        good_data=data,
        bad_data=data,
        good_hydra=hydra,
        bad_hydra=hydra,
        good_image=image,
        bad_image=image,
    )


def against_installed(question: Question) -> Question:
    """Return a question in whose good end the packages are as they are installed, so that at the bad end the others are laid.

    A range is no version: what is installed stands for it. Where the commit's own files name packages too, all are laid, so
    that these win over the commit's.
    """
    wanted = pins_of(question.bad_state.packages)
    environment = question.settings.environment
    if not wanted or environment.mode == "uv":  # an environment of its own has them all
        return question
    installed = {} if environment.files else pins_of(installed_packages(question.settings.python))
    as_installed = {name: installed[name] if pin.is_exact else pin for name, pin in wanted.items() if name in installed}
    packages = tuple(pin.requirement for pin in as_installed.values())
    return replace(question, good_state=replace(question.good_state, packages=packages))


def run_ends(
    desk: Desk, repository: Repository, ends: Sequence[OneEnd], *, title: str, quiet: bool, seed_idx: int = 0
) -> list[tuple[str, ProbeResult]]:
    """Run each question's one end; return (key, result) in order."""
    singles = [_single_of(repository, end, seed_idx) for end in ends]
    refuse_unused(add_uses([single.space.survey_fixups() for single in singles]))
    return run_stored(desk, singles, title=title, quiet=quiet)


def run_stored(desk: Desk, singles: Sequence[SingleProbe], *, title: str, quiet: bool) -> list[tuple[str, ProbeResult]]:
    """Run probes, stored under a title of their own; return (key, result) in order."""
    question = singles[0].question
    bisection_id = desk.store.create(question.to_json(), title=title)
    listener = _ignore if quiet else _Progress()
    with desk.store.lock(bisection_id), open_executor(question, desk.home) as executor:
        desk.store.append(bisection_id, "started", {})
        try:
            results = run_singles(singles, executor=executor, store=desk.store, bisection_id=bisection_id, listener=listener)
        except KeyboardInterrupt:
            desk.store.append(bisection_id, "interrupted", {})
            raise InterruptedByUser("interrupted") from None
        endings = ", ".join(result.fingerprint.ending.kind.value for _, result in results)
        desk.store.append(bisection_id, "finished", {"answer": {"status": endings, "summary": ""}})
    return results


def _single_of(repository: Repository, end: OneEnd, seed_idx: int) -> SingleProbe:
    space = build_space(repository, end.question)
    return SingleProbe(end.question, space, seed_idx, Point(len(space.changes) if end.is_bad else 0))


def _ignore(progress: ProbeProgress) -> None:
    """Show nothing."""


class _Progress:
    """Prints a line when a probe enters a phase, on stderr."""

    def __init__(self) -> None:
        self._phases: dict[str, str] = {}

    def __call__(self, progress: ProbeProgress) -> None:
        if self._phases.get(progress.job_id) != progress.phase:
            self._phases[progress.job_id] = progress.phase
            click.echo(f"{progress.job_id[:8]}  {progress.phase}", err=True)
