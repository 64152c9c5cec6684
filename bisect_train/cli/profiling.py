"""After a bisection by what a step costs: both sides of the culprit once more, with torch's profiler."""

from __future__ import annotations

from dataclasses import replace

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator import SingleProbe, run_singles
from bisect_train.core.errors import InputError, InterruptedByUser, MachineError, UnbuildableError
from bisect_train.core.executor import Executor
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.question import Question
from bisect_train.report.case import Case
from bisect_train.report.profile import say_profiles
from bisect_train.report.triage_case import states_of
from bisect_train.report.triage_parts import SecondLook
from bisect_train.store.contract import Store
from bisect_train.verdict.outcome import COST_METRICS
from bisect_train.verdict.triage import SecondRun


def is_profiled(question: Question) -> bool:
    """Return whether a culprit is looked at with the profiler: one that was found by what a step costs."""
    return question.metric.is_paired or question.metric.name in COST_METRICS


def with_profile(question: Question) -> Question:
    """Return a question whose probes run under torch's profiler."""
    return replace(question, settings=replace(question.settings, profile=True, triage=True, warm=False))


def profile_culprit(
    store: Store, title: str, question: Question, space: ChangeSpace, case: Case, executor: Executor
) -> SecondLook:
    """Run the state before the culprit and the one with it under the profiler, one after the other; return what differs."""
    closer = with_profile(question)
    name = store.create(closer.to_json() | {"kind": "probe"}, title=title)
    store.append(name, "started", {})
    results: list[Fingerprint] = []
    key = ""
    try:
        for point in states_of(case):
            [found] = run_singles([SingleProbe(closer, space, 0, point)], executor=executor, store=store, bisection_id=name)
            key, result = found
            results.append(result.fingerprint)
    except KeyboardInterrupt:
        store.append(name, "interrupted", {})
        raise
    except (InputError, UnbuildableError, MachineError, InterruptedByUser) as error:
        return SecondLook(SecondRun.PROFILE, key=key, reason=error.message)
    store.append(name, "finished", {"answer": {"status": results[-1].ending.kind.value, "summary": ""}})
    said = say_profiles(results, is_memory=not question.metric.is_paired)
    return SecondLook(SecondRun.PROFILE, said, key)
