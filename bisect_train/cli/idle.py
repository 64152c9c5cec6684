"""After a commit was named: is there a config key that it has stopped reading? Tried by giving the key another value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bisect_train.changes.idle_keys import Suspect, config_path_of, suspects_of
from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.coordinator import SingleProbe, run_singles
from bisect_train.core.changes import ChangeKind
from bisect_train.core.errors import InputError, MachineError, UnbuildableError
from bisect_train.core.executor import Executor
from bisect_train.core.question import ConfigHold, Inside, Limits, Question, Range
from bisect_train.search.terms import Plan
from bisect_train.store.contract import Store, StoredEvent
from bisect_train.verdict.outcome import digest_fingerprint

KEYS_TRIED = "keys_tried"
"""Event {commit, path, tried, idle}: keys that were given another value, and those that changed nothing from the commit on."""


def find_idle_keys(
    store: Store, bisection_id: str, question: Question, space: ChangeSpace, plan: Plan, *, home: Path, executor: Executor
) -> None:
    """Run what tells whether the named commit stopped reading a config key, once, and note it in the bisection.

    It needs runs that repeat bitwise: else another value cannot be told from chance. Where the runs cannot be made, nothing is
    said about keys; the answer stands without them.
    """
    named = _named_commit(space, plan)
    is_tried = any(event.kind == KEYS_TRIED for event in store.events(bisection_id))
    limits = question.limits
    is_limited = any(limit is not None for limit in (limits.max_probes, limits.gpu_hours, limits.wall_s))
    if named is None or is_tried or is_limited or question.part_of or not plan.ends.do_bits_repeat:
        return
    commit, parent = named
    repository = Repository.open(Path(question.repo), home=home)
    path = config_path_of(repository.git, commit, question.command, question.config_path)
    suspects = suspects_of(repository.git, parent=parent, commit=commit, path=path) if path else ()
    if not suspects:
        return
    noted = {"commit": commit, "path": path, "tried": [item.key for item in suspects], "idle": [], "num_probes": 0}
    try:
        tried = _try_keys(store, repository, _plain(question, path), suspects, parent=parent, commit=commit, executor=executor)
        noted |= {"idle": tried, "num_probes": 2 + 2 * len(suspects)}
    except (InputError, UnbuildableError, MachineError) as error:
        noted["reason"] = error.message
    store.append(bisection_id, KEYS_TRIED, noted)


def num_key_probes(events: Sequence[StoredEvent]) -> int:
    """Return how many probes were spent on finding out which keys are read."""
    return sum(event.data["num_probes"] for event in events if event.kind == KEYS_TRIED)


def _named_commit(space: ChangeSpace, plan: Plan) -> tuple[str, str] | None:
    """Return the one commit that was named, and its parent."""
    answer = plan.answer
    if answer is None or answer.status != "isolated" or len(answer.culprits[0].changes) != 1:
        return None
    idx = answer.culprits[0].changes[0]
    is_commit = idx < len(space.commits.commits) and space.changes[idx].kind is ChangeKind.COMMIT
    return (space.commits.commits[idx], space.commits.parents[idx][0]) if is_commit else None


def _plain(question: Question, path: str) -> Question:
    """Return the question with everything else as the good end has it."""
    return replace(
        question,
        bad_state=question.good_state,
        good_config=None,
        bad_config=None,
        hold=ConfigHold.TRAVEL,
        config_path=path,
        only=(),
        exclude=(),
        left_out=(),
        inside=Inside(),
        priors=(),
        limits=Limits(reuse=False),
    )


def _try_keys(
    store: Store,
    repository: Repository,
    plain: Question,
    suspects: Sequence[Suspect],
    *,
    parent: str,
    commit: str,
    executor: Executor,
) -> list[str]:
    """Return the keys that changed the run of the parent and change nothing at the commit."""
    questions = [_at(plain, parent), _at(plain, commit)]
    for suspect in suspects:
        for revision, file in ((parent, suspect.before), (commit, suspect.after)):
            questions.append(replace(_at(plain, revision), hold=ConfigHold.GOOD, good_config=file, bad_config=file))
    name = store.create(questions[0].to_json() | {"kind": "compare"}, title=f"is a key of {plain.config_path} read?")
    store.append(name, "started", {})
    singles = [SingleProbe(question, build_space(repository, question)) for question in questions]
    results = run_singles(singles, executor=executor, store=store, bisection_id=name)
    store.append(name, "finished", {"answer": {"status": "done", "summary": ""}})
    digests = [digest_fingerprint(result.fingerprint, plain.metric.name) for _, result in results]
    before, after = digests[:2]
    # a run that fails may end before it reads the key, and two that fail early are equal whatever the key is
    is_run = [result.fingerprint.ending.is_healthy for _, result in results]
    if not before or not after or not all(is_run[:2]):
        return []
    pairs = zip(suspects, digests[2::2], digests[3::2], is_run[3::2], strict=True)
    return [item.key for item, changed, unchanged, runs in pairs if changed != before and unchanged == after and runs]


def _at(plain: Question, revision: str) -> Question:
    return replace(plain, range=Range((revision,), revision))


def warn_of_idle_keys(events: Sequence[StoredEvent]) -> tuple[str, ...]:
    """Return a warning for each config key that the named commit has stopped reading."""
    return tuple(
        f"the key {key} is in {event.data['path']}, but nothing reads it from commit {event.data['commit'][:8]} on, as far as "
        "a probe goes: another value changed the run before that commit, and changes nothing in it since"
        for event in events
        if event.kind == KEYS_TRIED
        for key in event.data["idle"]
    )
