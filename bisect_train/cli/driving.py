"""Runs a question from the terminal: store, lock, Ray, live view, coordinator, report, exit status."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bisect_train.changes.data import digest_links, digest_source
from bisect_train.changes.space import ChangeSpace
from bisect_train.cli.asked import Output
from bisect_train.cli.delivering import deliver, make_console
from bisect_train.cli.descending import Whole, look_into, total_cost
from bisect_train.cli.desk import Desk
from bisect_train.cli.expecting import expected_culprit, question_behind
from bisect_train.cli.idle import find_idle_keys, num_key_probes
from bisect_train.cli.planning import count_changes, name_inside, survey_fixups
from bisect_train.cli.reopening import inside_of, plan_without_runs, reopen, report_of, respaced, warnings_of
from bisect_train.cli.telling import tell_answer
from bisect_train.cli.terminal import SafeConsole
from bisect_train.cli.triaging import look_closer, num_second_looks, second_look_of
from bisect_train.coordinator import Coordinator, Ended
from bisect_train.coordinator.climb import rungs_left
from bisect_train.coordinator.early import count_early
from bisect_train.coordinator.event_log import read_events
from bisect_train.coordinator.observing import count_rounds, load_state, of_rung, results_that_count
from bisect_train.core.errors import BisectTrainError, InputError, InterruptedByUser, MachineError
from bisect_train.core.executor import Executor
from bisect_train.core.question import Question
from bisect_train.report import Cost, DescentPart, LiveView, ReportData, build_report, report_to_json
from bisect_train.report.bynode import histories_of
from bisect_train.store.contract import Store

OK_OF_KIND = {"run": 4, "check": 0, "nightly": 0}
"""Exit status where there is no regression."""


@contextmanager
def open_executor(question: Question, home: Path) -> Iterator[Executor]:
    """Start a local Ray, or join a cluster, for one bisection."""
    from bisect_train_workers.ray_executor import RayExecutor

    executor = RayExecutor(
        question.settings,
        address=question.executor,
        temp_folder=home / "ray",
        node_home=home / "node",
        parallel=question.limits.parallel or 0,
    )
    try:
        yield executor
    finally:
        executor.close()


def start_bisection(
    desk: Desk, question: Question, space: ChangeSpace, *, title: str, output: Output, executor: Executor | None = None
) -> int:
    """Store a new question, run it to its answer, print the verdict; return the exit status.

    `executor`: one that has started already and that the caller closes.
    """
    for line in survey_fixups(space):
        if not output.quiet:
            SafeConsole(stderr=True, highlight=False).print(line, markup=False)
    bisection_id = desk.store.create(question.to_json(), title=title)
    status = drive_bisection(desk, bisection_id, question, space, output=output, executor=executor)
    return go_on_behind(desk, bisection_id, question, status, output=output)


def go_on_behind(desk: Desk, bisection_id: str, question: Question, status: int, *, output: Output) -> int:
    """Where a bisection has named an intended change, ask about what comes after it; return the last exit status."""
    found = expected_culprit(question, desk.store.load(bisection_id).answer or {}) if question.expected else None
    if found is None:
        return status
    commit, reason = found
    behind = question_behind(question, commit)
    said = f"{commit[:8]} is an intended change{f' ({reason})' if reason else ''}"
    console = SafeConsole(stderr=True, highlight=False)
    if behind is None:
        console.print(f"{said}, and nothing comes after it", markup=False)
        return OK_OF_KIND[question.kind]
    console.print(f"{said}; now what comes after it", markup=False)
    space = respaced(behind, home=desk.home)
    title = f"{commit[:8]}..{behind.range.bad[:8]}, behind an intended change"
    return start_bisection(desk, behind, space, title=title, output=output)


def refuse_changed_data(question: Question, when: str) -> None:
    """Raise MachineError where the linked data are not what the question was asked about, InputError where they are gone."""
    links = question.settings.links
    own = [*question.good_state.data, *question.bad_state.data]
    by_state = [pair for when in question.whens for pair in when.data]
    for link in (*links, *(item.link for item in own), *(link for link, _ in by_state)):
        if not link.is_remote and not os.path.lexists(link.source):
            raise InputError(
                f"{link.source} (linked at {link.target}) is gone {when}",
                hint="put the same data there again, then go on with `bisect-train resume`; other data are another question",
            )
    changed = [item.link for item in own if digest_source(item.link) != item.digest]
    changed += [link for link, digest in by_state if digest_links((link,)) != digest]
    if changed or (links and digest_links(links) != question.data):
        places = ", ".join(link.source for link in (changed or links)[:3])
        raise MachineError(
            f"linked data changed {when}: {places}", hint="ask again: a new bisection takes the data as they are"
        )


def answer_without_runs(desk: Desk, question: Question, space: ChangeSpace, *, reason: str, output: Output) -> int:
    """Store and print "no regression" for two ends that are the same before anything runs; return the exit status."""
    return deliver(store_without_runs(desk, question, space, reason=reason), make_console(output), output=output)


def store_without_runs(desk: Desk, question: Question, space: ChangeSpace, *, reason: str) -> ReportData:
    """Store a question whose ends are the same, with its answer; return the report."""
    bisection_id = desk.store.create(question.to_json(), title=reason)
    plan = plan_without_runs(reason)
    report = build_report(desk.store.load(bisection_id), question, space, plan, (), cost=Cost(0, 0, 0.0, 0.0))
    answer = {"answer": report_to_json(report), "exit_status": report.exit_status}
    desk.store.append(bisection_id, "finished", answer)
    return report


def drive_bisection(
    desk: Desk,
    bisection_id: str,
    question: Question,
    space: ChangeSpace,
    *,
    output: Output,
    executor: Executor | None = None,
) -> int:
    """Run a stored question to its answer, print the verdict; return the exit status. `executor` as in `start_bisection`."""
    report = answer_bisection(desk, bisection_id, question, space, output=output, executor=executor)
    status = deliver(report, make_console(output), output=output)
    if output.tell and expected_culprit(question, report_to_json(report)) is None:
        tell_answer(desk, report, output.tell)
    return status


def answer_bisection(
    desk: Desk,
    bisection_id: str,
    question: Question,
    space: ChangeSpace,
    *,
    output: Output,
    executor: Executor | None = None,
) -> ReportData:
    """Run a stored question to its answer and store that; return the report. `executor` as in `start_bisection`."""
    store = desk.store
    refuse_changed_data(question, "since this bisection was asked")
    with store.lock(bisection_id), _note_interrupt(store, bisection_id), ExitStack() as stack:
        return _answer(_Bench(desk, output, stack, executor), bisection_id, question, space)


class _Bench:
    """Where bisections run one after the other: one executor for all, started by the first.

    Args:
        desk: home and store.
        output: whether and how progress is shown.
        stack: closes the executor.
        executor: one that has started already and that the caller closes, or None.
    """

    def __init__(self, desk: Desk, output: Output, stack: ExitStack, executor: Executor | None = None) -> None:
        self.desk = desk
        self.output = output
        # the view goes to stderr's terminal or plain lines; the verdict alone goes to stdout
        self.progress = SafeConsole(stderr=True, no_color=output.no_color or None, highlight=False)
        self._stack = stack
        self._executor = executor

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
    """Run a bisection to its answer, then those inside the changes that it names; store and return the report."""
    store = bench.desk.store
    bench.say(_heading_of(bisection_id, question, space))
    earlier = load_state(store, bisection_id, question).observations
    with LiveView(bench.progress, space, question, quiet=bench.output.quiet, earlier=earlier) as view:
        executor = bench.executor(question)
        coordinator = Coordinator(
            question,
            bisection_id=bisection_id,
            space=space,
            store=store,
            executor=executor,
            listener=view,
            respace=partial(respaced, home=bench.desk.home),
        )
        ended = coordinator.run()
    question, space = ended.question, ended.space
    repeats = ended.plan_with_answer.ends.do_bits_repeat
    whole = Whole(store, bench.desk.home, bisection_id, question, space, ended.answer, repeats)
    descents = look_into(whole, report_part=lambda child: _answer_part(bench, child, bisection_id), may_ask=True)
    find_idle_keys(
        store, bisection_id, question, space, ended.plan_with_answer, home=bench.desk.home, executor=bench.executor(question)
    )
    probes, plan = of_rung(results_that_count(store, bisection_id), question), ended.plan_with_answer
    look_closer(store, bisection_id, question, space, plan, probes, executor=bench.executor(question))
    refuse_changed_data(question, "while its probes ran, so they cannot be compared")
    report = _report_of(store, bisection_id, question, space, ended, descents=descents)
    store.append(bisection_id, "finished", {"answer": report_to_json(report), "exit_status": report.exit_status})
    return report


def _heading_of(bisection_id: str, question: Question, space: ChangeSpace) -> str:
    if not question.part_of:
        larger = f" (up to {question.ladder[-1].name} where nothing shows)" if not question.is_last_rung else ""
        return f"bisection {bisection_id}: {count_changes(space)}, probes of {question.rung.name}{larger}"
    return f"inside {name_inside(question, space)}, bisection {bisection_id}"


def _answer_part(bench: _Bench, child: str, whole: str) -> ReportData:
    """Run the bisection inside a change to its answer, or report it if it has one."""
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
        reason = {"reason": "inside a change", "child": child}
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
    probes, events = results_that_count(store, bisection_id), read_events(store, bisection_id)
    num_early, saved_steps = count_early(probes, question)
    cost = Cost(
        probes=ended.num_probes + num_key_probes(events) + num_second_looks(events),
        cached=ended.num_reused,
        wall_s=ended.wall_s,
        gpu_s=3600 * ended.gpu_hours,
        rounds=count_rounds(events),
        pruned=len(ended.plan.inert),
        early=num_early,
        saved_steps=saved_steps,
    )
    plan = ended.plan_with_answer
    return build_report(
        stored,
        question,
        space,
        plan,
        of_rung(probes, question),
        cost=total_cost(cost, descents),
        inside=inside_of(plan, space),
        descents=descents,
        warnings=warnings_of(plan, question, space, store, bisection_id),
        second=second_look_of(events),
        rungs=rungs_left(question, events, probes),
        nodes=histories_of(events, store.results(bisection_id)),
    )
