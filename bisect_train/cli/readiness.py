"""`doctor --recipe`: is the user's own program ready for a search? One rank, few steps, then every rung of the recipe twice.

Each run is one that a bisection would make. What is looked at first is what makes any search pointless: a program that does not
start, a loss that does not fall, parameters without a gradient, runs that differ from themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.cli import driving
from bisect_train.cli.asked import Asked
from bisect_train.cli.asking import ask_question
from bisect_train.cli.checkup import Finding
from bisect_train.cli.data_ends import snapshot_without_data
from bisect_train.cli.finding import find_recipe
from bisect_train.cli.triaging import with_triage
from bisect_train.coordinator import SingleProbe, run_singles
from bisect_train.core.errors import BisectTrainError
from bisect_train.core.executor import Executor
from bisect_train.core.fingerprint import Fingerprint, RankRecord
from bisect_train.core.probe import ProbeResult, Rung, RunSettings, local_ranks, num_nodes
from bisect_train.core.question import Question, Range
from bisect_train.recipe import Recipe
from bisect_train.report.triage_case import asked_of
from bisect_train.report.words import SIGNAL_WORDS, say_number, say_seconds, shorten
from bisect_train.store.memory import MemoryStore
from bisect_train.verdict.divergence import first_divergence
from bisect_train.verdict.outcome import digest_fingerprint
from bisect_train.verdict.triage import triage

SANITY_STEPS = 20  # chosen, not measured: enough for a loss to fall in most programs, seconds on a CPU
SHARE = 4  # the mean of the last quarter of the losses is compared with that of the first
NUM_NAMES = 3


@dataclass(frozen=True, slots=True)
class Twice:
    """Two runs of the same seed on one rung."""

    rung: Rung
    first: ProbeResult
    second: ProbeResult


def check_program(recipe: Path, repo: Path, *, python: str | None, home: Path) -> Iterator[Finding]:
    """Yield findings about the program that a recipe runs, as the working tree has it.

    Args:
        recipe: the recipe file.
        repo: the repository.
        python: interpreter that was named, or None.
        home: the tool's folder.
    """
    asked = Asked(recipe=recipe, repo=repo, python=python)
    try:
        repository = Repository.open(repo, home=home)
        found = find_recipe(asked, repository.root)
        commit = snapshot_without_data(asked, repository)
        question = with_triage(ask_question(asked, repository, kind="probe", commits=Range((commit,), commit)), every_step=True)
        question = replace(question, settings=_largest(question, found))
        space = build_space(repository, question)
    except BisectTrainError as error:
        yield Finding("recipe", False, error.message, error.hint)
        return
    yield Finding("recipe", True, f"{recipe}: {' '.join(question.command)}")
    try:
        with driving.open_executor(question, home) as executor:
            yield from _look_at(question, found, space, executor)
    except BisectTrainError as error:
        yield Finding("runs", False, error.message, error.hint)


def _largest(question: Question, recipe: Recipe) -> RunSettings:
    """Return settings with the resources that the largest rung takes."""
    ranks = max((1, *recipe.shrink.ranks))
    per_node = recipe.resources.ranks_per_node
    cpus = recipe.resources.cpus or float(local_ranks(ranks, per_node))
    return replace(question.settings, cpus=max(question.settings.cpus, cpus), nodes=num_nodes(ranks, per_node))


def _look_at(question: Question, recipe: Recipe, space: ChangeSpace, executor: Executor) -> Iterator[Finding]:
    rungs, skipped = rungs_of(recipe)
    sanity = Rung(min(SANITY_STEPS, rungs[0].steps or SANITY_STEPS), 1)
    done = _run_twice(replace(question, rung=sanity), space, executor)
    yield from judge_sanity(done, replace(question, rung=sanity))
    if not done.first.fingerprint.ending.is_healthy:
        return
    for rung in rungs:
        twice = done if rung == sanity else _run_twice(replace(question, rung=rung), space, executor)
        yield judge_rung(twice)
    for rung in skipped:
        yield Finding("rung", True, f"{rung.name}: not run, it lets the program finish by itself")


def rungs_of(recipe: Recipe) -> tuple[list[Rung], list[Rung]]:
    """Return the rungs of a recipe that are run, the smallest first, and those that would run the whole program."""
    steps = recipe.shrink.steps or (SANITY_STEPS,)
    every = [Rung(num, ranks) for ranks in recipe.shrink.ranks or (1,) for num in steps]
    limited = [rung for rung in every if rung.steps is not None]
    return limited or [Rung(SANITY_STEPS, 1)], [rung for rung in every if rung.steps is None]


def _run_twice(question: Question, space: ChangeSpace, executor: Executor) -> Twice:
    """Run the same thing twice, one after the other: runs that compete for cores say little of how long they take."""
    results = []
    for _ in range(2):
        store = MemoryStore()
        name = store.create(question.to_json(), title="doctor")
        [(_, result)] = run_singles([SingleProbe(question, space)], executor=executor, store=store, bisection_id=name)
        results.append(result)
        if not result.fingerprint.ending.is_healthy:
            break
    return Twice(question.rung, results[0], results[-1])


# ---- what the runs say --------------------------------------------------------------------------------------------


def judge_sanity(twice: Twice, question: Question) -> Iterator[Finding]:
    """Yield what one rank and a few steps say: it starts, the loss falls, gradients are finite and everywhere, it repeats."""
    run = twice.first.fingerprint
    ending = run.ending
    if not ending.is_healthy or not run.ranks or not run.num_steps:
        found = triage(twice.first, asked=asked_of(question)).findings
        said = found[0].summary if found else ending.message or ending.kind.value
        what = shorten(said, 200) if not ending.is_healthy else "it ran, but no optimizer step was recorded"
        remedy = found[0].look_at if found else "`bisect-train probe --triage` shows its output"
        yield Finding("starts", False, what, remedy)
        return
    yield Finding("starts", True, f"{run.num_steps} steps on 1 rank in {say_seconds(twice.first.wall_s)}")
    yield _judge_loss(run)
    yield _judge_gradients(run)
    yield _judge_parameters(run.ranks[0])
    yield _judge_repeat(twice)
    shown = triage(twice.first, asked=asked_of(question)).findings
    for finding in shown:
        yield Finding("triage", False, f"{finding.symptom}: {finding.summary}", f"look at {finding.look_at}")


def _judge_loss(run: Fingerprint) -> Finding:
    losses = [step.loss for step in run.ranks[0].steps if step.loss is not None]
    if len(losses) < 2:
        return Finding("loss", False, "no loss was seen: `backward` was not called on it", "judge by a metric of the log")
    if not all(map(math.isfinite, losses)):
        first = next(idx for idx, loss in enumerate(losses) if not math.isfinite(loss))
        return Finding("loss", False, f"not finite from step {first} on", "`bisect-train probe --triage` names the operation")
    num = max(1, len(losses) // SHARE)
    begin, end = math.fsum(losses[:num]) / num, math.fsum(losses[-num:]) / num
    said = f"{say_number(begin)} -> {say_number(end)} over {len(losses)} steps"
    remedy = "more steps, if the learning rate warms up; else look at labels, the learning rate, the loss"
    return Finding("loss", end < begin, f"{said}{'' if end < begin else ': it does not fall'}", remedy)


def _judge_gradients(run: Fingerprint) -> Finding:
    norms = [step.clip_norm if step.clip_norm is not None else step.grad_norm for step in run.ranks[0].steps]
    seen = [(idx, norm) for idx, norm in enumerate(norms) if norm is not None]
    bad = next((idx for idx, norm in seen if not math.isfinite(norm)), None)
    if not seen:
        return Finding("gradients", False, "none was seen when the optimizer stepped", "is the optimizer one of torch's?")
    if bad is not None:
        return Finding("gradients", False, f"not finite at step {bad}", "`bisect-train probe --triage` names the operation")
    low, high = min(norm for _, norm in seen), max(norm for _, norm in seen)
    return Finding("gradients", high > 0.0, f"norms from {say_number(low)} to {say_number(high)}", "every gradient is zero")


def _judge_parameters(record: RankRecord) -> Finding:
    """Return whether every parameter gets a gradient."""
    data = next((event.data for event in record.events if event.name == "gradients"), {})
    missing, zero = (list(data.get(name) or ()) for name in ("missing", "zero"))
    num_missing = int(data.get("num_missing", len(missing)) if data else record.steps[0].missing_grads)
    num_zero = int(data.get("num_zero", len(zero)))
    if not num_missing and not num_zero:
        total = data.get("num")
        return Finding("parameters", True, f"all {total} get a gradient" if total else "all get a gradient")
    names = ", ".join(map(str, [*missing, *zero][:NUM_NAMES]))
    said = f"{num_missing} without a gradient, {num_zero} with a zero one at the first step" + (f": {names}" if names else "")
    remedy = "a module that is not called, detach or no_grad; set requires_grad to False where it is meant"
    return Finding("parameters", num_missing == 0, said, remedy)


def _judge_repeat(twice: Twice) -> Finding:
    remedy = "more runs are needed then: seed every generator, one thread, or --deterministic"
    return Finding("repeats", are_equal(twice), _say_repeat(twice), remedy)


def judge_rung(twice: Twice) -> Finding:
    """Return whether a rung repeats itself and how long it takes; one that cannot be run is a fault, one that varies is not."""
    ending = twice.second.fingerprint.ending
    if not ending.is_healthy:
        said = f"{twice.rung.name}: {shorten(ending.message or ending.kind.value, 160)}"
        return Finding("rung", False, said, "leave it out of `shrink`, or give it more time")
    times = [twice.first.wall_s, twice.second.wall_s]
    return Finding("rung", True, f"{twice.rung.name}: {_say_repeat(twice)}, {say_seconds(sum(times) / 2)} a run")


def are_equal(twice: Twice) -> bool:
    """Return whether two runs of the same seed are equal bit for bit in what trains."""
    digests = [digest_fingerprint(run.fingerprint, "loss") for run in (twice.first, twice.second)]
    return bool(digests[0]) and digests[0] == digests[1]


def _say_repeat(twice: Twice) -> str:
    if are_equal(twice):
        return "deterministic, two runs are equal bit for bit"
    found = first_divergence(twice.first.fingerprint, twice.second.fingerprint)
    if found is None:
        return "nothing recorded that could be compared"
    where = "" if found.step is None else f" at step {found.step}"
    return f"not deterministic: two runs differ{where} in the {SIGNAL_WORDS.get(found.signal, found.signal)}"
