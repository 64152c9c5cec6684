"""What a reader must know about a person's part in an answer: priors that it goes against, marks, observations taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bisect_train.changes.space import ChangeSpace
from bisect_train.coordinator.contradiction import Contradiction
from bisect_train.coordinator.person import REPLAYED, WITH_RESULT, events_that_count, marks_of, request_of_spec
from bisect_train.core.verdict import VerdictKind
from bisect_train.report.words import say_count, short_id
from bisect_train.search.terms import Plan
from bisect_train.store.contract import UNDONE, StoredEvent

MAX_NAMED = 5


def warn_of_priors(plan: Plan, space: ChangeSpace) -> tuple[str, ...]:
    """Return a warning for each culprit that was called unlikely, by `--path` or `--prior`."""
    culprits = plan.answer.culprits if plan.answer else ()
    named = [idx for culprit in culprits for idx in culprit.changes]
    weights = dict(space.priors.weights)
    outside = [space.changes[idx].id[:12] for idx in named if idx in space.unlikely]
    told = [f"{name} touches none of the paths that --path names" for name in outside]
    against = [idx for idx in named if idx not in space.unlikely and weights.get(idx, 1.0) < 1.0]
    told += [f"{short_id(space.changes[idx])} was found against its prior (weight {weights[idx]:g})" for idx in against]
    return tuple(told)


def warn_of_person(
    events: Sequence[StoredEvent], space: ChangeSpace, contradicted: Sequence[Contradiction] = ()
) -> tuple[str, ...]:
    """Return what a person marked or took back, and which marks runs contradict, one sentence each."""
    told = [text for event in events if event.kind == REPLAYED and (text := _say_replay(event))]
    marks = marks_of(events_that_count(events))
    told += [_say_marks(marks, space)] if marks else []
    told += [say_contradiction(found, space) for found in contradicted]
    steps = _steps_taken_back(events)
    if steps:
        num_proof = sum(any(request_of_spec(event.data["spec"]).attempt > 0 for event in step) for step in steps)
        told.append(f"{say_count(len(steps), 'run')} taken back by hand{_say_of_proof(num_proof)}")
    return tuple(told)


def say_contradiction(found: Contradiction, space: ChangeSpace) -> str:
    """Return that runs contradict a mark: `3f2a1bc0 was marked good; its 3 runs say bad`."""
    name = short_id(space.changes[found.version - 1])
    runs = "run says" if found.num_runs == 1 else f"{found.num_runs} runs say"
    return f"{name} was marked {found.marked.value}; its {runs} {found.shown.value}"


def _say_replay(event: StoredEvent) -> str:
    left_out = [request_of_spec(spec) for spec in event.data["requests"]]
    of = f"this is a replay of {event.data['of']}"
    if not left_out:
        return of
    num_proof = sum(request.attempt > 0 for request in left_out)
    return f"{of} without {say_count(len(left_out), 'observation')} of it{_say_of_proof(num_proof)}"


def _say_of_proof(num: int) -> str:
    return f", {num} of a proof: its error bound does not count what a person took out" if num else ""


def _say_marks(marks: Mapping[int, VerdictKind], space: ChangeSpace) -> str:
    said = [f"{short_id(space.changes[version - 1])} {kind.value}" for version, kind in marks.items()]
    more = f" and {len(said) - MAX_NAMED} more" if len(said) > MAX_NAMED else ""
    return f"marked by hand, not measured: {', '.join(said[:MAX_NAMED])}{more}"


def _steps_taken_back(events: Sequence[StoredEvent]) -> list[list[StoredEvent]]:
    """Return the events of each result that was taken back."""
    undone = {int(seq) for event in events if event.kind == UNDONE for seq in event.data["seqs"]}
    steps: dict[str, list[StoredEvent]] = {}
    for event in events:
        if event.seq in undone and event.kind in WITH_RESULT:
            steps.setdefault(str(event.data["key"]), []).append(event)
    return list(steps.values())
