"""Runs of a good version for a baseline, and what a question takes from one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from bisect_train.baseline import Baseline, read_baseline
from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.cli.desk import Desk
from bisect_train.cli.notes import say_note
from bisect_train.cli.singles import run_stored
from bisect_train.coordinator import SingleProbe
from bisect_train.coordinator.golden import golden_for
from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.golden import Golden, GoldenRun
from bisect_train.core.probe import RECORDER_VERSION
from bisect_train.core.question import Question
from bisect_train.verdict.outcome import Outcome, OutcomeKind, judge_outcome

PREFIX = "baseline:"


@dataclass(frozen=True, slots=True)
class Measured:
    """What the runs of a good version gave."""

    golden: Golden
    values: tuple[float, ...]


def now_text() -> str:
    """Return the date and time of a saving, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def measure_golden(
    desk: Desk, repository: Repository, question: Question, *, name: str, num_seeds: int, quiet: bool
) -> Measured:
    """Run a version on so many seeds, and its first seed twice.

    Raises:
        InputError: a criterion that has no values.
        MachineError: a run failed, or showed no value of the metric.
    """
    if question.settings.judge or question.symptom:
        raise InputError("a baseline keeps values, and a judge or a symptom gives none", hint="leave out --judge and --symptom")
    space = build_space(repository, question)
    seeds = (0, 0, *range(1, num_seeds))
    singles = [SingleProbe(question, space, seed_idx) for seed_idx in seeds]
    done = run_stored(desk, singles, title=f"baseline {name}", quiet=quiet)
    outcomes = [judge_outcome(result.fingerprint, question.metric) for _, result in done]
    runs = tuple(_golden_run(seed, outcome) for seed, outcome in zip(seeds, outcomes, strict=True))
    spec = desk.store.find_probe(done[0][0]).spec
    golden = Golden(
        name,
        space.variant(singles[0].point).id,
        question.rung.name,
        question.settings.measure_digest,
        str(spec["hardware_class"]),
        str(spec["interpreter"]),
        RECORDER_VERSION,
        bool(runs[0].digest) and runs[0] == runs[1],
        runs[1:],
    )
    return Measured(golden, tuple(run.value for run in runs[1:]))


def _golden_run(seed_idx: int, outcome: Outcome) -> GoldenRun:
    if outcome.kind is not OutcomeKind.MEASURED or outcome.value is None:
        said = outcome.reason or outcome.kind.value
        raise MachineError(
            f"seed {seed_idx}: {said}; a baseline is saved from runs that end well", hint="`bisect-train show last` shows it"
        )
    return GoldenRun(seed_idx, outcome.value, outcome.digest)


def split_baseline(repository: Repository, goods: Sequence[str]) -> tuple[tuple[str, ...], Baseline | None]:
    """Return good revisions in which `baseline:NAME` is replaced by its commit, and the baseline.

    Raises:
        InputError: there is no such baseline, or it stands beside other good ends.
    """
    named = [good for good in goods if good.startswith(PREFIX)]
    if not named:
        return tuple(goods), None
    if len(goods) > 1:
        raise InputError(f"{named[0]} stands beside other good ends", hint="a baseline is the one good end")
    baseline = read_baseline(repository.root, named[0].removeprefix(PREFIX))
    return (baseline.saved.commit,), baseline


def with_baseline(question: Question, space: ChangeSpace, baseline: Baseline | None) -> Question:
    """Return a question with the golden values that hold for its good end, and the changes that are intended."""
    if baseline is None:
        return question
    is_of_metric = baseline.metric == (question.metric.name, question.metric.reduce) and not question.metric.is_paired
    golden = golden_for(question, space, baseline.golden) if is_of_metric else ()
    if not golden:
        say_note(
            f"baseline {baseline.name} was saved for another command, metric, number of steps or way of measuring: "
            "the good end is run anew"
        )
    expected = tuple((item.commit, item.reason) for item in baseline.intended)
    return replace(question, golden=golden, expected=(*question.expected, *expected))
