"""`probe --triage`: one run, alone or against a baseline, and what is to be said of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from rich.console import Group, RenderableType
from rich.text import Text

from bisect_train.changes.repository import Repository
from bisect_train.changes.run_history import RunHistory, expand
from bisect_train.cli.desk import Desk
from bisect_train.cli.recorded_runs import WANDB, read_recorded_history
from bisect_train.cli.singles import OneEnd, run_ends
from bisect_train.cli.triaging import run_second_look, with_triage
from bisect_train.core.errors import InputError, RevisionError
from bisect_train.core.probe import ProbeResult
from bisect_train.core.question import Question, Range
from bisect_train.report.beside import render_beside
from bisect_train.report.compare import say_first_difference
from bisect_train.report.probe_view import render_probe
from bisect_train.report.triage_case import asked_of
from bisect_train.report.triage_parts import TriagePart
from bisect_train.report.triage_text import render_triage
from bisect_train.report.triage_view import triage_run
from bisect_train.store.contract import StoredProbe
from bisect_train.verdict.outcome import why_unseen
from bisect_train.verdict.triage import SYMPTOMS, Asked, symptoms_of, triage


@dataclass(frozen=True, slots=True)
class TriageOptions:
    """How a probe is looked at.

    Attributes:
        baseline: a revision, the key of an earlier probe, or a recorded run; None for none.
        title: one line for lists.
        seed_idx: of both runs.
        is_quiet: whether progress is not shown.
        second_look: whether a run that hangs or gives NaN is run once more.
    """

    baseline: str | None
    title: str
    seed_idx: int = 0
    is_quiet: bool = False
    second_look: bool = True


@dataclass(frozen=True, slots=True)
class TriagedProbe:
    """A probe, its baseline if there is one (`history`: where that is a recorded run), and what triage says."""

    probe: StoredProbe
    baseline: ProbeResult | None
    part: TriagePart
    history: RunHistory | None = None


def triage_probe(desk: Desk, repository: Repository, end: OneEnd, options: TriageOptions) -> TriagedProbe:
    """Run one variant, and its baseline where a revision is named, and look at what was recorded.

    Raises:
        InputError: the baseline is no revision, probe or recorded run.
    """
    end = replace(end, question=with_triage(end.question, every_step=options.baseline is not None))
    known, ends = _ask_baseline(desk, repository, end, options.baseline)
    history = known if isinstance(known, RunHistory) else None
    run = partial(run_ends, desk, repository, quiet=options.is_quiet, seed_idx=options.seed_idx)
    found = run([*ends, end], title=options.title)
    base = (known if isinstance(known, ProbeResult) else None) or (found[0][1] if ends else None)
    probe = desk.store.find_probe(found[-1][0])

    def run_again(closer: Question) -> tuple[str, ProbeResult]:
        return run([replace(end, question=closer)], title=f"closer look: {options.title}")[0]

    asked = asked_of(end.question)
    recorded = history.to_result() if history is not None and history.counts_steps else None
    kind = triage(probe.result, baseline=base, asked=asked).second_run
    second = run_second_look(end.question, kind, run_again) if kind is not None and options.second_look else None
    return TriagedProbe(
        probe, base, triage_run(probe.result, baseline=base, recorded=recorded, asked=asked, second=second), history
    )


def _ask_baseline(
    desk: Desk, repository: Repository, end: OneEnd, named: str | None
) -> tuple[ProbeResult | RunHistory | None, list[OneEnd]]:
    """Return what is known of a baseline, or what has to run for it."""
    if named is None:
        return None, []
    if named.startswith(WANDB):
        return read_recorded_history(named), []
    try:
        commit = repository.resolve(named)
    except RevisionError:
        try:
            return desk.store.find_probe(named).result, []
        except InputError:
            if expand(named).is_dir():
                return read_recorded_history(named), []
            raise InputError(
                f"--baseline {named!r} is no revision, no probe and no folder of a recorded run",
                hint="name a commit that is known to be good, the key of a stored probe (`bisect-train log`), or a run "
                f"(wandb/run-..., {WANDB}ENTITY/PROJECT/RUN)",
            ) from None
    return None, [replace(end, question=replace(end.question, range=Range((commit,), commit)))]


def shows_symptom(probe: StoredProbe, symptom: str, part: TriagePart | None = None) -> bool:
    """Return whether a run shows a symptom: by itself, as its baseline may, too, or as triage has told (`part`)."""
    result = probe.result
    alone = triage(result, asked=Asked(ranks=max(1, len(result.fingerprint.ranks)))).findings
    told = (*alone, *(part.findings if part else ()))
    return symptom in symptoms_of(told, result.fingerprint.ending)


def render_triaged(triaged: TriagedProbe, *, symptom: str = "") -> RenderableType:
    """Return the probe, then what triage says of it, for the terminal."""
    fingerprint = triaged.probe.result.fingerprint
    parts: list[RenderableType] = [render_probe(triaged.probe, with_stacks=False), Text("")]
    if triaged.history is not None:
        parts.append(render_beside(triaged.history, triaged.probe.result))
    elif triaged.baseline is not None:
        parts.append(
            Text(say_first_difference(triaged.baseline.fingerprint, fingerprint, left="the baseline", right="the run"))
        )
    parts.append(render_triage(triaged.part))
    if symptom:
        unseen = why_unseen(fingerprint, symptom)
        is_shown = shows_symptom(triaged.probe, symptom, triaged.part)
        seen = "shown" if is_shown else f"cannot be seen: {unseen}" if unseen else "not shown"
        parts += [Text(""), Text(f"{symptom} ({SYMPTOMS[symptom].description}): {seen}")]
    return Group(*parts)
