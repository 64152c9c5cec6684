"""`cache verify --rerun N`: stored probes are run again, fresh, and their bits compared with what is stored.

Only results of this machine's hardware and interpreter are run, of bisections whose ends are known to repeat bitwise. One that
differs is run once more: if the two fresh runs do not agree either, this state does not repeat, and nothing is said about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from bisect_train.cli import driving
from bisect_train.cli.checking import problem_of
from bisect_train.cli.checkup import Finding
from bisect_train.cli.desk import SEARCHES, Desk
from bisect_train.cli.reopening import Reopened, reopen
from bisect_train.cli.stock import Stock
from bisect_train.cli.stored_results import Machine, Origin, is_of, keys_of, question_of
from bisect_train.coordinator import SingleProbe, run_singles
from bisect_train.coordinator.trust import is_reusable
from bisect_train.core.changes import point_of_text
from bisect_train.core.errors import BisectTrainError
from bisect_train.core.executor import Executor
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.probe import RECORDER_VERSION
from bisect_train.report.words import say_count, say_divergence
from bisect_train.store.memory import MemoryStore
from bisect_train.store.upkeep import StoredResult, open_archive
from bisect_train.verdict.divergence import first_divergence
from bisect_train.verdict.outcome import digest_fingerprint


@dataclass(frozen=True, slots=True)
class Candidate:
    """A stored result that can be run again, with its bisection as it is rebuilt today."""

    result: StoredResult
    reopened: Reopened


def rerun(desk: Desk, stock: Stock, num: int) -> Iterator[Finding]:
    """Yield a finding for each of `num` stored probes that are run again, spread over all that can be."""
    found = list(find_candidates(desk, stock))
    chosen = spread(found, num)
    if not chosen:
        said = "none of this hardware, interpreter and recorder is known to repeat bitwise"
        yield Finding("rerun", True, said)
    with ExitStack() as stack:
        executors: dict[str, Executor] = {}
        for candidate in chosen:
            question = candidate.reopened.question
            try:
                if question.executor not in executors:
                    opened = stack.enter_context(driving.open_executor(question, desk.home))
                    executors[question.executor] = opened
                yield compare(candidate, executors[question.executor])
            except BisectTrainError as error:
                yield Finding("rerun", True, f"{candidate.result.key} was not run: {error.message}")
    if chosen:
        yield Finding("rerun", True, f"{len(chosen)} of {say_count(len(found), 'result')} that could be run again")


def find_candidates(desk: Desk, stock: Stock) -> Iterator[Candidate]:
    """Yield the results that are known to repeat, the oldest first."""
    archive, machine = open_archive(stock.home), Machine()
    if archive is None:
        return
    try:
        results = list(archive.results())
    finally:
        archive.close()
    kept = {stored.id: stored for stored in stock.bisections if stored.question["kind"] in SEARCHES}
    reopened: dict[str, Reopened | None] = {}
    for result in results:
        stored = kept.get(result.bisection_id)
        question = question_of(stored) if stored else None
        if question is None or not is_of(result, machine.facts(question.settings)) or problem_of(result):
            continue
        if result.bisection_id not in reopened:
            reopened[result.bisection_id] = _reopen(desk, result.bisection_id)
        found = reopened[result.bisection_id]
        if found is not None and _is_current(result, found) and is_reusable(result.unpack(), question.settings):
            yield Candidate(result, found)


def _reopen(desk: Desk, bisection_id: str) -> Reopened | None:
    """Return a bisection whose runs repeat bitwise, else None."""
    try:
        found = reopen(desk, bisection_id)
    except BisectTrainError:  # its repository is gone, say: nothing of it can be run
        return None
    return found if found.plan.ends.do_bits_repeat else None


def _is_current(result: StoredResult, reopened: Reopened) -> bool:
    """Return whether a result is of today's recorder, and of a run with the bisection's own settings."""
    own = reopened.stored.id
    scopes = ("", own)
    return any(result.key in keys_of(result, reopened.question, Origin(RECORDER_VERSION, scope)) for scope in scopes)


def spread(items: Sequence[Candidate], num: int) -> list[Candidate]:
    """Return so many of the items, evenly spread over all of them."""
    num = min(num, len(items))
    return [items[(2 * idx + 1) * len(items) // (2 * num)] for idx in range(num)]


def compare(candidate: Candidate, executor: Executor) -> Finding:
    """Return what a fresh run says about a stored result.

    Raises:
        UnbuildableError: its state cannot be built any more.
        MachineError: the probe was lost again and again.
    """
    result, metric = candidate.result, candidate.reopened.question.metric.name
    stored = result.unpack().fingerprint
    fresh = run_again(candidate, executor)
    if fresh is None:
        return Finding("rerun", True, f"{result.key} was not run: its state is another one today (data, packages, or settings)")
    if _is_same(stored, fresh, metric):
        return Finding("rerun", True, f"{result.key}: a fresh run gives the same bits")
    again = run_again(candidate, executor)
    if again is None or not _is_same(fresh, again, metric):
        return Finding("rerun", True, f"{result.key}: two fresh runs differ from each other, so it says nothing")
    why = say_divergence(first_divergence(stored, fresh), left="the stored run", right="the fresh one")
    mend = f"`bisect-train cache gc --bisection {result.bisection_id}` removes it; `run --no-reuse` takes nothing over"
    return Finding("rerun", False, f"stored result {result.key} is not what a fresh run gives. {why}", mend)


def run_again(candidate: Candidate, executor: Executor) -> Fingerprint | None:
    """Return the fingerprint of a fresh run in a process of its own, None where its state is another one today."""
    question, spec = candidate.reopened.question, candidate.result.spec
    point = point_of_text(str(spec["point"]))
    if candidate.reopened.space.variant(point).id != spec["variant"]:
        return None
    question = replace(question, settings=replace(question.settings, warm=False))
    store = MemoryStore()
    single = SingleProbe(question, candidate.reopened.space, int(spec["seed_idx"]), point)
    name = store.create(question.to_json(), title="verify")
    [(_, found)] = run_singles([single], executor=executor, store=store, bisection_id=name)
    return found.fingerprint


def _is_same(left: Fingerprint, right: Fingerprint, metric: str) -> bool:
    digests = {digest_fingerprint(run, metric) for run in (left, right)}
    return len(digests) == 1 and left.ending.kind is right.ending.kind
