"""Runs a question from the terminal: store, lock, Ray, live view, coordinator, report, exit status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bisect_train.changes.data import digest_links
from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.cli.descending import Whole, look_into_merges, total_cost
from bisect_train.cli.options import Output
from bisect_train.cli.planning import count_changes, survey_fixups
from bisect_train.coordinator import Coordinator, Ended
from bisect_train.coordinator.observing import REUSE_DISTRUSTED, StoredState, load_state, results_that_count
from bisect_train.core.changes import point_of_text
from bisect_train.core.errors import BisectTrainError, InputError, InterruptedByUser, MachineError
from bisect_train.core.executor import Executor
from bisect_train.core.question import Question
from bisect_train.report import (
    ChangePart,
    Cost,
    DescentPart,
    LiveView,
    ReportData,
    build_report,
    render_html,
    render_text,
    report_to_json,
)
from bisect_train.report.byfixup import warn_of_fixups
from bisect_train.report.byperson import warn_of_person, warn_of_priors
from bisect_train.report.words import name_change, say_count
from bisect_train.search.terms import Answer, Phase, Plan
from bisect_train.store.contract import Store, StoredBisection, no_bisection
from bisect_train.store.home import default_home, ensure_home, open_store
from bisect_train.verdict.end_terms import Ends, EndsStatus

SEARCHES = ("run", "check")
"""Kinds of questions that have an answer; `probe` and `compare` are stored too, for their probes."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What a command works with: the tool's home folder and its store."""

    home: Path
    store: Store


@contextmanager
def open_desk() -> Iterator[Desk]:
    """Open home and store for one command. Raises MachineError when they cannot be used."""
    home = ensure_home(default_home())
    store = open_store(home)
    try:
        yield Desk(home, store)
    finally:
        store.close()


def make_console(output: Output) -> Console:
    """Return the console for results: no colours when asked, or when the output is no terminal."""
    return Console(no_color=output.no_color or None, highlight=False, soft_wrap=False)


@contextmanager
def open_executor(question: Question, home: Path) -> Iterator[Executor]:
    """Start a local Ray, or join a cluster, for one bisection."""
    from bisect_train_workers.ray_executor import RayExecutor

    executor = RayExecutor(question.settings, address=question.executor, temp_folder=home / "ray", node_home=home / "node")
    try:
        yield executor
    finally:
        executor.close()


def start_bisection(desk: Desk, question: Question, space: ChangeSpace, *, title: str, output: Output) -> int:
    """Store a new question, run it to its answer, print the verdict; return the exit status."""
    for line in survey_fixups(space):
        if not output.quiet:
            Console(stderr=True, highlight=False).print(line, markup=False)
    bisection_id = desk.store.create(question.to_json(), title=title)
    return drive_bisection(desk, bisection_id, question, space, output=output)


def refuse_changed_data(question: Question, when: str) -> None:
    """Raise MachineError where the linked data are no longer what the question was asked about."""
    links = question.settings.links
    if links and digest_links(links) != question.data:
        places = ", ".join(link.source for link in links[:3])
        raise MachineError(
            f"linked data changed {when}: {places}", hint="ask again: a new bisection takes the data as they are"
        )


def answer_without_runs(desk: Desk, question: Question, space: ChangeSpace, *, reason: str, output: Output) -> int:
    """Store and print "no regression" for two ends that are the same before anything runs; return the exit status."""
    bisection_id = desk.store.create(question.to_json(), title=reason)
    ends = Ends(EndsStatus.SAME, bound=0.0, reason=f"{reason}; nothing was run")
    plan = Plan(Phase.DONE, (), ends, answer=Answer("no_regression", ends.reason))
    report = build_report(desk.store.load(bisection_id), question, space, plan, (), cost=Cost(0, 0, 0.0, 0.0))
    answer = {"answer": report_to_json(report), "exit_status": report.exit_status}
    desk.store.append(bisection_id, "finished", answer)
    return deliver(report, make_console(output), output=output)


def drive_bisection(desk: Desk, bisection_id: str, question: Question, space: ChangeSpace, *, output: Output) -> int:
    """Run a stored question to its answer, print the verdict; return the exit status."""
    store = desk.store
    refuse_changed_data(question, "since this bisection was asked")
    with store.lock(bisection_id), _note_interrupt(store, bisection_id), ExitStack() as stack:
        report = _answer(_Bench(desk, output, stack), bisection_id, question, space)
    return deliver(report, make_console(output), output=output)


class _Bench:
    """Where bisections run one after the other: one executor for all, started by the first.

    Args:
        desk: home and store.
        output: whether and how progress is shown.
        stack: closes the executor.
    """

    def __init__(self, desk: Desk, output: Output, stack: ExitStack) -> None:
        self.desk = desk
        self.output = output
        # the view goes to stderr's terminal or plain lines; the verdict alone goes to stdout
        self.progress = Console(stderr=True, no_color=output.no_color or None, highlight=False)
        self._stack = stack
        self._executor: Executor | None = None

    def executor(self, question: Question) -> Executor:
        """Return the executor; the parts of a bisection run with the settings of the whole."""
        if self._executor is None:
            self._executor = self._stack.enter_context(open_executor(question, self.desk.home))
        return self._executor

    def say(self, text: str) -> None:
        """Print a line of progress."""
        if not self.output.quiet:
            self.progress.print(text, markup=False, soft_wrap=True)


def _answer(bench: _Bench, bisection_id: str, question: Question, space: ChangeSpace) -> ReportData:
    """Run a bisection to its answer, then those inside the merges that it names; store and return the report."""
    store = bench.desk.store
    bench.say(_heading_of(bisection_id, question, space))
    with LiveView(bench.progress, space, question, quiet=bench.output.quiet) as view:
        executor = bench.executor(question)
        coordinator = Coordinator(
            question, bisection_id=bisection_id, space=space, store=store, executor=executor, listener=view
        )
        ended = coordinator.run()
    whole = Whole(store, bench.desk.home, bisection_id, question, space, ended.answer)
    descents = look_into_merges(whole, report_part=lambda child: _answer_part(bench, child, bisection_id), may_ask=True)
    refuse_changed_data(question, "while its probes ran, so they cannot be compared")
    report = _report_of(store, bisection_id, question, space, ended, descents=descents)
    store.append(bisection_id, "finished", {"answer": report_to_json(report), "exit_status": report.exit_status})
    return report


def _heading_of(bisection_id: str, question: Question, space: ChangeSpace) -> str:
    if not question.part_of:
        return f"bisection {bisection_id}: {count_changes(space)}, probes of {question.rung.name}"
    merge = space.changes[-1]
    num = say_count(len(space.changes) - 1, "commit")
    return f"inside merge {name_change(merge).removeprefix('commit ')}: {num} and the merge itself, bisection {bisection_id}"


def _answer_part(bench: _Bench, child: str, whole: str) -> ReportData:
    """Run the bisection inside a merge to its answer, or report it if it has one."""
    store = bench.desk.store
    reopened = reopen(bench.desk, child)
    if reopened.stored.status == "finished" and reopened.plan.answer is not None:
        return report_of(bench.desk, reopened)
    with store.lock(child), _note_stopped_part(store, child, whole):
        return _answer(bench, child, reopened.question, reopened.space)


@contextmanager
def _note_stopped_part(store: Store, child: str, whole: str) -> Iterator[None]:
    """Note in the whole that its part was stopped."""
    try:
        yield
    except BisectTrainError:
        is_cancelled = store.load(child).status == "cancelled"
        reason = {"reason": "inside a merge", "child": child}
        store.append(whole, "cancelled" if is_cancelled else "interrupted", reason)
        raise


@contextmanager
def _note_interrupt(store: Store, bisection_id: str) -> Iterator[None]:
    """Note Ctrl-C where the coordinator does not yet, or no longer, work."""
    try:
        yield
    except KeyboardInterrupt:
        store.append(bisection_id, "interrupted", {})
        raise InterruptedByUser("interrupted", hint=f"`bisect-train resume {bisection_id}` goes on") from None


def _report_of(
    store: Store,
    bisection_id: str,
    question: Question,
    space: ChangeSpace,
    ended: Ended,
    *,
    descents: tuple[DescentPart, ...],
) -> ReportData:
    stored = store.load(bisection_id)
    probes = results_that_count(store, bisection_id)
    cost = Cost(probes=ended.num_probes, cached=ended.num_reused, wall_s=ended.wall_s, gpu_s=3600 * ended.gpu_hours)
    plan = ended.plan_with_answer
    return build_report(
        stored,
        question,
        space,
        plan,
        probes,
        cost=total_cost(cost, descents),
        inside=inside_of(plan, space),
        descents=descents,
        warnings=warnings_of(plan, space, store, bisection_id),
    )


def warnings_of(plan: Plan, space: ChangeSpace, store: Store, bisection_id: str) -> tuple[str, ...]:
    """Return what a reader must know about an answer beside the answer."""
    stale = "results of earlier bisections were dropped: the same run shows something else today (data, or the machine)"
    events = store.events(bisection_id)
    is_stale = any(event.kind == REUSE_DISTRUSTED for event in events)
    points = [point_of_text(probe.spec["point"]) for probe in results_that_count(store, bisection_id)] if space.fixups else []
    by_hand = (*warn_of_priors(plan, space), *warn_of_person(events, space), *warn_of_fixups(plan, space, points))
    return (*by_hand, *([stale] if is_stale else []))


def deliver(report: ReportData, console: Console, *, output: Output) -> int:
    """Print the verdict and write the files that were asked for; return the exit status."""
    console.print(render_text(report))
    data = report_to_json(report)
    if output.json is not None:
        write_text(output.json, json.dumps(data, indent=2) + "\n")
    if output.out is not None:
        write_text(output.out / "report.json", json.dumps(data, indent=2) + "\n")
        write_text(output.out / "report.html", render_html(report))
        if not output.quiet:
            console.print(f"report: {output.out / 'report.html'}")
    return report.exit_status


def write_text(path: Path, text: str) -> None:
    """Write a file beside its place and rename it. Raises MachineError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".tmp")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}", hint="choose another place with --json or --out") from None


def is_part(stored: StoredBisection) -> bool:
    """Return whether a bisection looks inside a merge that another one has named."""
    return bool(stored.question.get("part_of"))


def whole_of(store: Store, stored: StoredBisection) -> StoredBisection:
    """Return what is to be gone on with: an unfinished bisection that an unfinished one is a part of, else the same."""
    if not is_part(stored) or stored.status == "finished":
        return stored
    whole = store.load(stored.question["part_of"])
    return stored if whole.status == "finished" else whole


def find_stored(store: Store, id_or_prefix: str) -> StoredBisection:
    """Return what is stored under an id, of any kind; "last" is the newest that is no part of another one.

    Raises:
        InputError: there is none.
    """
    found = next((item for item in store.list() if not is_part(item)), None) if id_or_prefix == "last" else None
    return found or store.load(id_or_prefix)


def find_bisection(store: Store, id_or_prefix: str) -> StoredBisection:
    """Return a stored bisection; "last" is the newest one, single probes and comparisons left out.

    Raises:
        InputError: there is none, or the id is that of a single probe or a comparison.
    """
    if id_or_prefix == "last":
        found = next((item for item in store.list() if item.question["kind"] in SEARCHES and not is_part(item)), None)
        if found is None:
            raise no_bisection("last")
        return found
    stored = store.load(id_or_prefix)
    if stored.question["kind"] not in SEARCHES:
        hint = f"`bisect-train log {stored.id}` lists its probes, `bisect-train show KEY` shows one"
        raise InputError(f"{stored.id} is a {stored.question['kind']}, not a bisection", hint=hint)
    return stored


def deliver_as_stored(desk: Desk, stored: StoredBisection, console: Console, *, output: Output) -> int:
    """Print an answer that an earlier version of the tool gave and that today's rules would want more runs for."""
    answer = stored.answer or {}
    console.print(answer.get("summary", ""), markup=False)
    console.print(
        f"(answered by an earlier version; `bisect-train resume {stored.id}` adds what today's rules ask for)", markup=False
    )
    for place in (output.json, output.out and output.out / "report.json"):
        if place:
            write_text(place, json.dumps(answer, indent=2) + "\n")
    finished = [event for event in desk.store.events(stored.id) if event.kind == "finished"]
    return int(finished[-1].data.get("exit_status", 0)) if finished else 0


@dataclass(frozen=True, slots=True)
class Reopened:
    """A stored bisection with everything that its reports need; nothing is run."""

    stored: StoredBisection
    question: Question
    space: ChangeSpace
    state: StoredState
    plan: Plan


def reopen(desk: Desk, id_or_prefix: str) -> Reopened:
    """Return a stored bisection, rebuilt from its observations.

    Raises:
        InputError: there is none, or its repository is gone.
    """
    stored = find_bisection(desk.store, id_or_prefix)
    question = Question.of_json(stored.question)
    space = build_space(Repository.open(Path(question.repo), home=desk.home), question)
    state = load_state(desk.store, stored.id, question)
    return Reopened(stored, question, space, state, state.plan(question, space))


def report_of(desk: Desk, reopened: Reopened) -> ReportData:
    """Return the report of a stored bisection as its observations give it today."""
    descents = descents_of(desk, reopened)
    cost_data = (reopened.stored.answer or {}).get("cost", {})
    cost = Cost(
        probes=int(cost_data.get("probes") or len(reopened.state.probes)),
        cached=int(cost_data.get("cached") or 0),
        wall_s=float(cost_data.get("wall_s") or 0.0),
        gpu_s=float(cost_data.get("gpu_s") or 0.0),
    )
    if not cost_data:
        cost = total_cost(cost, descents)  # a stored answer has counted them
    inside = inside_of(reopened.plan, reopened.space)
    return build_report(
        reopened.stored,
        reopened.question,
        reopened.space,
        reopened.plan,
        reopened.state.probes,
        cost=cost,
        inside=inside,
        descents=descents,
        warnings=warnings_of(reopened.plan, reopened.space, desk.store, reopened.stored.id),
    )


def descents_of(desk: Desk, reopened: Reopened) -> tuple[DescentPart, ...]:
    """Return what is stored of the inside of the merges that a bisection has named; asks and runs nothing."""
    whole = Whole(desk.store, desk.home, reopened.stored.id, reopened.question, reopened.space, reopened.plan.answer)
    return look_into_merges(whole, report_part=lambda child: report_of(desk, reopen(desk, child)), may_ask=False)


def inside_of(plan: Plan, space: ChangeSpace) -> tuple[ChangePart, ...]:
    """Return the files that the commits of the first culprit touch."""
    culprits = plan.answer.culprits if plan.answer else ()
    files = [path for idx in (culprits[0].changes if culprits else ()) for path in space.files_of(idx)]
    return tuple(ChangePart("file", path, path) for path in dict.fromkeys(files))
