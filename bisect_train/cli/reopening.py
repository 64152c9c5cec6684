"""A stored bisection rebuilt from its observations, and its report; nothing is run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from bisect_train.changes.repository import Repository
from bisect_train.changes.space import ChangeSpace, build_space
from bisect_train.cli.descending import Whole, look_into, total_cost
from bisect_train.cli.desk import Desk, find_bisection
from bisect_train.cli.idle import num_key_probes, warn_of_idle_keys
from bisect_train.cli.planning import say_ignored_requirements
from bisect_train.cli.triaging import num_second_looks, second_look_of
from bisect_train.coordinator.climb import rungs_left
from bisect_train.coordinator.contradiction import contradicted_marks
from bisect_train.coordinator.early import count_early
from bisect_train.coordinator.event_log import read_events, refuse_changes
from bisect_train.coordinator.golden import GOLDEN_STALE
from bisect_train.coordinator.limits import question_in_force
from bisect_train.coordinator.observing import REUSE_DISTRUSTED, StoredState, count_rounds, load_state, results_that_count
from bisect_train.core.changes import point_of_text
from bisect_train.core.question import ConfigHold, Question
from bisect_train.report import ChangePart, Cost, DescentPart, ReportData, build_report
from bisect_train.report.byfixup import warn_of_fixups
from bisect_train.report.bynode import histories_of, warn_of_nodes
from bisect_train.report.byperson import warn_of_person, warn_of_priors
from bisect_train.report.stand_ins import warn_of_shims
from bisect_train.search.terms import Answer, Phase, Plan
from bisect_train.store.contract import Store, StoredBisection
from bisect_train.verdict.end_terms import Ends, EndsStatus


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
    question = question_in_force(desk.store, stored)
    space = respaced(question, home=desk.home)
    refuse_changes(read_events(desk.store, stored.id), stored.id, len(space.changes))
    state = load_state(desk.store, stored.id, question)
    is_same = (stored.answer or {}).get("status") == "no_regression"
    is_without_runs = is_same and not space.changes and not state.observations
    plan = plan_without_runs(stored.title) if is_without_runs else state.plan(question, space)
    return Reopened(stored, question, space, state, plan)


def plan_without_runs(reason: str) -> Plan:
    """Return the plan of a question that was answered before anything ran: its ends are the same."""
    ends = Ends(EndsStatus.SAME, bound=0.0, reason=f"{reason}; nothing was run")
    return Plan(Phase.DONE, (), ends, answer=Answer("no_regression", ends.reason))


def respaced(question: Question, *, home: Path) -> ChangeSpace:
    """Return the changes of a stored question. Raises InputError where its repository is gone."""
    return build_space(Repository.open(Path(question.repo), home=home), question)


def report_of(desk: Desk, reopened: Reopened) -> ReportData:
    """Return the report of a stored bisection as its observations give it today."""
    descents = descents_of(desk, reopened)
    cost_data = (reopened.stored.answer or {}).get("cost", {})
    num_early, saved_steps = count_early(reopened.state.probes, reopened.question)
    cost = Cost(
        probes=int(cost_data.get("probes") or len(reopened.state.probes)),
        cached=int(cost_data.get("cached") or 0),
        wall_s=float(cost_data.get("wall_s") or 0.0),
        gpu_s=float(cost_data.get("gpu_s") or 0.0),
        rounds=int(cost_data.get("rounds") or count_rounds(read_events(desk.store, reopened.stored.id))),
        pruned=int(cost_data.get("pruned") or len(reopened.plan.inert)),
        early=int(cost_data.get("early") or num_early),
        saved_steps=int(cost_data.get("saved_steps") or saved_steps),
    )
    events = read_events(desk.store, reopened.stored.id)
    if not cost_data:
        cost = replace(cost, probes=cost.probes + num_key_probes(events) + num_second_looks(events))
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
        warnings=warnings_of(reopened.plan, reopened.question, reopened.space, desk.store, reopened.stored.id),
        second=second_look_of(events),
        rungs=rungs_left(reopened.question, events, results_that_count(desk.store, reopened.stored.id)),
        nodes=histories_of(events, desk.store.results(reopened.stored.id)),
    )


def descents_of(desk: Desk, reopened: Reopened) -> tuple[DescentPart, ...]:
    """Return what is stored of the inside of the merges that a bisection has named; asks and runs nothing."""
    whole = Whole(
        desk.store,
        desk.home,
        reopened.stored.id,
        reopened.question,
        reopened.space,
        reopened.plan.answer,
        reopened.plan.ends.do_bits_repeat,
    )
    return look_into(whole, report_part=lambda child: report_of(desk, reopen(desk, child)), may_ask=False)


def inside_of(plan: Plan, space: ChangeSpace) -> tuple[ChangePart, ...]:
    """Return the files that the commits of the first culprit touch."""
    culprits = plan.answer.culprits if plan.answer else ()
    files = [path for idx in (culprits[0].changes if culprits else ()) for path in space.files_of(idx)]
    return tuple(ChangePart("file", path, path) for path in dict.fromkeys(files))


def _warn_of_config(plan: Plan, question: Question, space: ChangeSpace) -> tuple[str, ...]:
    """Return how a config file of the repository was held, where the answer may depend on it."""
    culprits = plan.answer.culprits if plan.answer else ()
    if question.part_of or not any(idx < len(space.commits.commits) for culprit in culprits for idx in culprit.changes):
        return ()
    if question.hold is not ConfigHold.TRAVEL:
        good = "that of the good end"
        how = {"good": good, "bad": "that of the bad end", "split": f"{good}, its keys are changes of their own"}
        return (f"every commit ran with one {question.config_path}: {how[question.hold.value]}",)
    path = space.travelling_config()
    if not path:
        return ()
    return (f"{path} changed within the range, and each commit ran with its own: with --hold-config the answer may be another",)


def _warn_of_packages(question: Question, space: ChangeSpace) -> tuple[str, ...]:
    return () if question.part_of else say_ignored_requirements(space)


def warnings_of(plan: Plan, question: Question, space: ChangeSpace, store: Store, bisection_id: str) -> tuple[str, ...]:
    """Return what a reader must know about an answer beside the answer."""
    stale = "results of earlier bisections were dropped: the same run shows something else today (data, or the machine)"
    events = read_events(store, bisection_id)
    is_stale = any(event.kind == REUSE_DISTRUSTED for event in events)
    points = [point_of_text(probe.spec["point"]) for probe in results_that_count(store, bisection_id)] if space.fixups else []
    state = load_state(store, bisection_id, question)
    contradicted = contradicted_marks(state.marks, state.observations, plan.ends, question.metric)
    by_node = warn_of_nodes(events, store.results(bisection_id))
    by_hand = (*by_node, *warn_of_priors(plan, space), *warn_of_person(events, space, contradicted))
    by_config = (
        *warn_of_shims(question),
        *warn_of_idle_keys(events),
        *_warn_of_config(plan, question, space),
        *_warn_of_packages(question, space),
    )
    by_golden = _warn_of_golden(question, is_golden_stale=any(event.kind == GOLDEN_STALE for event in events))
    return (*by_config, *by_hand, *by_golden, *warn_of_fixups(plan, space, points), *([stale] if is_stale else []))


def _warn_of_golden(question: Question, *, is_golden_stale: bool) -> tuple[str, ...]:
    """Return what a reader must know of a baseline that stands for the good end."""
    if not question.golden:
        return ()
    name = question.golden[0].name
    if is_golden_stale:
        return (
            f"baseline {name} does not count: a fresh run of the good end shows something else today (environment, data or "
            "machine), so its runs were made anew",
        )
    return (f"the good end is known from baseline {name}, where hardware, interpreter and steps are those it was saved with",)
