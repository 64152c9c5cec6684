"""`cache verify`: is what is kept still whole? Each finding says what was looked at, what was found, and what mends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from bisect_train.cli.checkup import Finding
from bisect_train.cli.stock import CLONE, HOME_MIRROR, Stock
from bisect_train.cli.stored_results import Origin, explain_key, question_of
from bisect_train.coordinator.event_log import problem_of as problem_of_event
from bisect_train.coordinator.observing import BEGUN_AS
from bisect_train.core.errors import BisectTrainError, MachineError
from bisect_train.core.probe import RECORDER_VERSION
from bisect_train.report.words import say_count
from bisect_train.store.contract import StoredBisection
from bisect_train.store.upkeep import Archive, StoredResult, mend_of, open_archive, place_of
from bisect_train_workers.gitcmd import call_git
from bisect_train_workers.leftovers import WARM, find_leftovers
from bisect_train_workers.soundness import find_damage, find_git_damage
from bisect_train_workers.upkeep import ENVIRONMENT, MIRROR, OVERLAY

_MAX_SHOWN = 5
_LOOKED_AT = {MIRROR: "node mirror", OVERLAY: "overlay", ENVIRONMENT: "environment"}
_MAKE_AGAIN = "`bisect-train cache gc --max-size 0` removes it, and the next probe makes it again"


def check_cache(stock: Stock) -> Iterator[Finding]:
    """Yield findings about all that is kept; changes nothing."""
    yield from _check_database(stock)
    yield from _check_mirrors(stock)
    yield from _check_node(stock)
    left = [item for item in find_leftovers(stock.home, stock.node) if item.what != WARM]
    said = ", ".join(f"{item.what} ({item.where})" for item in left[:_MAX_SHOWN]) or "no process, folder or file of a dead run"
    yield Finding("left behind", not left, said, "`bisect-train cache gc` sweeps it")


def _check_database(stock: Stock) -> Iterator[Finding]:
    place, away = place_of(stock.home), mend_of(stock.home)
    try:
        if stock.trouble is not None:
            raise stock.trouble
        archive = open_archive(stock.home)
        if archive is None:
            yield Finding("database", True, "there is none yet")
            return
        try:
            problems = archive.problems()
            yield Finding("database", not problems, "; ".join(problems[:_MAX_SHOWN]) or f"{place} is whole", away)
            yield from _check_events(archive, stock.bisections)
            yield from _check_results(archive, stock.bisections)
        finally:
            archive.close()
    except BisectTrainError as error:
        yield Finding("database", False, error.message, error.hint if "write" in error.message else away)


def _check_events(archive: Archive, every: Sequence[StoredBisection]) -> Iterator[Finding]:
    num, num_wrong = 0, 0
    for stored in every:
        for event in archive.events(stored.id):
            num += 1
            problem = problem_of_event(event)
            num_wrong += bool(problem)
            if problem and num_wrong <= _MAX_SHOWN:
                said = f"event {event.seq} ({event.kind}) of bisection {stored.id}: {problem}"
                mend = (
                    f"ask again, which takes its results over; then `bisect-train cache gc --bisection {stored.id}` removes it"
                )
                yield Finding("event", False, said, mend)
    yield Finding("events", not num_wrong, f"{num - num_wrong} of {num} can be read", "see above")


def _check_results(archive: Archive, every: Sequence[StoredBisection]) -> Iterator[Finding]:
    questions = {stored.id: question_of(stored) for stored in every}
    unreadable = [name for name, question in questions.items() if question is None]
    yield Finding(
        "questions",
        not unreadable,
        f"{len(unreadable)} cannot be read, first that of {unreadable[0]}" if unreadable else f"{len(questions)} can be read",
        f"`bisect-train cache gc --bisection {unreadable[0]}` removes it" if unreadable else "",
    )
    num, kinds, wrong = 0, Counter[str](), list[tuple[StoredResult, str]]()
    for result in archive.results():
        num += 1
        problem = problem_of(result)
        if problem:
            wrong.append((result, problem))
            continue
        question = questions.get(result.bisection_id)
        kinds[_kind_of(explain_key(result, question) if question else None)] += 1
    for result, problem in wrong[:_MAX_SHOWN]:
        mend = f"`bisect-train cache gc --bisection {result.bisection_id}` removes its bisection: ask again"
        yield Finding("result", False, f"{result.key} of bisection {result.bisection_id}: {problem}", mend)
    said = f"{num - len(wrong)} of {num} decode and are those of their keys" if num else "there are none"
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    yield Finding("results", not wrong, f"{said}{': ' + told if told else ''}", "see above")


def problem_of(result: StoredResult) -> str:
    """Return what is wrong with a stored result, "" for nothing."""
    if result.problem:
        return result.problem
    try:
        found = result.unpack()
    except MachineError as error:
        return error.message
    is_own = found.job_id in (result.key, result.spec.get(BEGUN_AS)) or result.is_inherited
    return "" if is_own else f"it is the result of probe {found.job_id}"


def _kind_of(origin: Origin | None) -> str:
    if origin is None:
        return "whose key cannot be computed again (a closer look, or taken over)"
    if origin.recorder != RECORDER_VERSION:
        return f"of recorder {origin.recorder}, never taken over"
    return "of one bisection only" if origin.scope else "for every bisection"


def _check_mirrors(stock: Stock) -> Iterator[Finding]:
    mirrors = [item.path for item in stock.items if item.kind == HOME_MIRROR]
    damage = {path: find_git_damage(path, has_loose=True) for path in mirrors}
    damage |= {item.path: find_git_damage(item.path) for item in stock.items if item.kind == CLONE}
    for path, said in damage.items():
        if said:
            yield Finding("mirror", False, f"{path}: {said}", f"remove it, it is made again: rm -r {path}")
    sound = [path for path, said in damage.items() if not said]
    if sound or not damage:
        yield Finding("mirrors", True, f"{say_count(len(sound), 'repository')} of git objects can be read")
    yield from _check_commits(stock, {path for path in mirrors if not damage[path]})


def _check_commits(stock: Stock, mirrors: set[Path]) -> Iterator[Finding]:
    """Yield the bisections whose ends are gone from the repository: they can be neither reported nor resumed."""
    gone = []
    for stored in stock.bisections:
        ends = stored.question.get("range") or {}
        commits = [*ends.get("goods", ()), ends.get("bad", "")]
        if not any(_has_all(mirror, commits) for mirror in mirrors):
            gone.append(stored.id)
    if stock.bisections:
        said = f"the ends of {len(gone)} of {len(stock.bisections)} bisections are not in their repositories: "
        mend = f"fetch them there again, or remove the bisection: `bisect-train cache gc --bisection {gone[0]}`" if gone else ""
        yield Finding("ends", not gone, said + ", ".join(gone[:_MAX_SHOWN]) if gone else "all can be read", mend)


def _has_all(mirror: Path, commits: Sequence[str]) -> bool:
    stdin = "".join(f"{commit}^{{tree}}\n" for commit in commits).encode()
    status, output, _ = call_git(["cat-file", "--batch-check"], cwd=mirror, stdin=stdin)
    lines = output.decode(errors="replace").splitlines()
    return status == 0 and len(lines) == len(commits) and not any(line.endswith(" missing") for line in lines)


def _check_node(stock: Stock) -> Iterator[Finding]:
    for kind, name in _LOOKED_AT.items():
        items = [item for item in stock.items if item.kind == kind]
        num_wrong = 0
        for item in items:
            if said := find_damage(item):
                num_wrong += 1
                yield Finding(name, False, f"{item.path}: {said}", _MAKE_AGAIN)
        if items and not num_wrong:
            yield Finding(name, True, f"{len(items)} of {len(items)} are whole")
