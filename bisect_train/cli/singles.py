"""Runs one or two probes from the terminal, for `probe` and `compare`."""

from __future__ import annotations

from collections.abc import Sequence

import rich_click as click

from bisect_train.changes.fixup import add_uses, refuse_unused
from bisect_train.changes.repository import Repository
from bisect_train.changes.space import build_space
from bisect_train.cli.desk import Desk
from bisect_train.cli.driving import open_executor
from bisect_train.coordinator import SingleProbe, run_singles
from bisect_train.core.errors import InterruptedByUser
from bisect_train.core.executor import ProbeProgress
from bisect_train.core.probe import ProbeResult
from bisect_train.core.question import Question


def run_questions(
    desk: Desk, repository: Repository, questions: Sequence[Question], *, title: str, quiet: bool, seed_idx: int = 0
) -> list[tuple[str, ProbeResult]]:
    """Run each question's one variant; return (key, result) in order."""
    singles = [SingleProbe(question, build_space(repository, question), seed_idx) for question in questions]
    refuse_unused(add_uses([single.space.survey_fixups() for single in singles]))
    bisection_id = desk.store.create(questions[0].to_json(), title=title)
    listener = _ignore if quiet else _Progress()
    with desk.store.lock(bisection_id), open_executor(questions[0], desk.home) as executor:
        desk.store.append(bisection_id, "started", {})
        try:
            results = run_singles(singles, executor=executor, store=desk.store, bisection_id=bisection_id, listener=listener)
        except KeyboardInterrupt:
            desk.store.append(bisection_id, "interrupted", {})
            raise InterruptedByUser("interrupted") from None
        endings = ", ".join(result.fingerprint.ending.kind.value for _, result in results)
        desk.store.append(bisection_id, "finished", {"answer": {"status": endings, "summary": ""}})
    return results


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
