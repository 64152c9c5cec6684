"""The closer look that some failures ask for: the run again, with torch's own checks on; after a bisection, its culprit's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bisect_train.changes.space import ChangeSpace
from bisect_train.cli.profiling import is_profiled, profile_culprit
from bisect_train.coordinator import SingleProbe, children_of, limits_left, run_singles
from bisect_train.coordinator.event_log import read_events
from bisect_train.coordinator.spending import say_spent
from bisect_train.core.errors import InputError, InterruptedByUser, MachineError, UnbuildableError
from bisect_train.core.executor import Executor
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.probe import ProbeResult
from bisect_train.core.question import Question
from bisect_train.report.case import make_case
from bisect_train.report.second_look import read_second_look
from bisect_train.report.triage_case import asked_of, pick_runs, replicates_of
from bisect_train.report.triage_parts import SecondLook
from bisect_train.search.terms import Plan
from bisect_train.store.contract import Store, StoredEvent, StoredProbe
from bisect_train.verdict.triage import SecondRun, triage

LOOKED_CLOSER = "looked_closer"
"""Event {kind, said, key, reason, num_probes}: a named culprit was run once more with torch's own checks on."""

DETAIL_ENV = (("TORCH_CPP_LOG_LEVEL", "INFO"), ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"), ("TORCH_SHOW_CPP_STACKTRACES", "1"))
"""What makes torch say which collective each rank calls; it adds collectives of its own, so it is for a second run only."""


def with_triage(question: Question, *, every_step: bool = False) -> Question:
    """Return a question whose probes record what triage needs."""
    settings = question.settings
    return replace(question, settings=replace(settings, triage=True, every_step=settings.every_step or every_step))


def look_closer_at(question: Question, kind: SecondRun) -> Question:
    """Return a question whose probes run with the checks of torch that tell more of a failure."""
    settings = with_triage(question).settings
    is_anomaly = kind is SecondRun.ANOMALY
    closer = replace(settings, anomaly=is_anomaly, debug_env=() if is_anomaly else DETAIL_ENV)
    return replace(question, settings=closer)


def run_second_look(
    question: Question, kind: SecondRun, run_again: Callable[[Question], tuple[str, ProbeResult]]
) -> SecondLook:
    """Run a variant once more with torch's own checks, and return what these said."""
    try:
        key, result = run_again(look_closer_at(question, kind))
    except (InputError, UnbuildableError, MachineError, InterruptedByUser) as error:
        return SecondLook(kind, reason=error.message)
    return read_second_look(kind, result, key=key)


# ---- after a bisection --------------------------------------------------------------------------------------------


def look_closer(
    store: Store,
    bisection_id: str,
    question: Question,
    space: ChangeSpace,
    plan: Plan,
    probes: Sequence[StoredProbe],
    *,
    executor: Executor,
) -> None:
    """Run the named culprit once more where it hangs or gives NaN, and note in the bisection what that said.

    It is done once, never for a part of a bisection. Where it cannot be run, or the budget is spent, only the reason is noted.
    """
    if question.part_of or not question.limits.second_look or second_look_of(read_events(store, bisection_id)) is not None:
        return
    case = make_case(question, space, plan, probes, bisection=bisection_id)
    if case.answer.status not in ("isolated", "several"):
        return
    title, spent = f"closer look at the culprit of {bisection_id}", _why_spent(store, bisection_id, question)
    if is_profiled(question) and not case.is_symptom:
        profiled = SecondLook(SecondRun.PROFILE, reason=spent)
        if not spent:
            profiled = profile_culprit(store, title, question, space, case, executor)
        _note(store, bisection_id, profiled, num_probes=2)
        return
    if not case.is_symptom:
        return
    chosen = pick_runs(case)
    if chosen is None:
        return
    baseline, run = chosen
    others: Sequence[Fingerprint] = replicates_of(case, baseline)
    known = baseline.probe.result if baseline else None
    kind = triage(run.probe.result, baseline=known, replicates=others, asked=asked_of(question, baseline, run)).second_run
    if kind is None:
        return

    def run_again(closer: Question) -> tuple[str, ProbeResult]:
        name = store.create(closer.to_json() | {"kind": "probe"}, title=title)
        single = SingleProbe(closer, space, run.seen.seed_idx, run.seen.point)
        store.append(name, "started", {})
        try:
            [found] = run_singles([single], executor=executor, store=store, bisection_id=name)
        except KeyboardInterrupt:
            store.append(name, "interrupted", {})
            raise
        store.append(name, "finished", {"answer": {"status": found[1].fingerprint.ending.kind.value, "summary": ""}})
        return found

    second = SecondLook(kind, reason=spent) if spent else run_second_look(question, kind, run_again)
    _note(store, bisection_id, second, num_probes=1)


def _note(store: Store, bisection_id: str, second: SecondLook, *, num_probes: int) -> None:
    """Store what a closer look said; it took so many probes, if it was made."""
    noted = {"kind": second.kind.value, "said": list(second.said), "key": second.key, "reason": second.reason}
    store.append(bisection_id, LOOKED_CLOSER, {**noted, "num_probes": num_probes if second.key else 0})


def _why_spent(store: Store, bisection_id: str, question: Question) -> str:
    left = limits_left(store, question, [bisection_id, *children_of(read_events(store, bisection_id)).values()])
    return say_spent(question.limits, left)


def second_look_of(events: Sequence[StoredEvent]) -> SecondLook | None:
    """Return what a closer look at a bisection's culprit said, None where there was none."""
    for event in events:
        if event.kind == LOOKED_CLOSER:
            data = event.data
            return SecondLook(SecondRun(data["kind"]), tuple(data["said"]), data["key"], data["reason"])
    return None


def num_second_looks(events: Sequence[StoredEvent]) -> int:
    """Return how many probes were spent on closer looks."""
    return sum(event.data["num_probes"] for event in events if event.kind == LOOKED_CLOSER)
