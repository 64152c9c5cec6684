"""The nodes of a cluster, as one bisection sees them: where a probe must not run, who is asked again, who is not believed.

Nothing of this happens on one machine. Each thing that is decided is an event before it is used, so that a resumed bisection
decides the same:

    lost       a probe that was lost is kept away from the nodes that lost it; a node that loses most of its probes is avoided
    checks     runs that surprise, and those on which an answer hangs, are run again on another node before the answer is given
    wrong      a node that two others contradict is avoided, and what it said is taken back and run again elsewhere
    split      where nobody is left to decide between nodes that contradict each other, there is no answer
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from bisect_train.coordinator.event_log import read_events
from bisect_train.coordinator.knowledge import Knowledge
from bisect_train.coordinator.node_events import NODE_SUSPECT, NODES_DISAGREE, NODES_SEEN, Why, suspects_of
from bisect_train.coordinator.observing import request_of
from bisect_train.coordinator.person import WITH_RESULT, steps_to_undo, undo_event
from bisect_train.coordinator.spending import PROBE_LOST
from bisect_train.core.changes import Point, Variant
from bisect_train.core.probe import MachineFacts, share_a_node
from bisect_train.core.question import Question
from bisect_train.search.node_checks import CHECK_REPEAT, NODE_CHECK, deciding_runs
from bisect_train.search.terms import PROVED, Phase, Plan, Request, Rules, answer_nodes
from bisect_train.store.contract import PROBE_FINISHED, Store, StoredEvent
from bisect_train.verdict.node_trust import (
    Standing,
    Weighed,
    do_two_agree,
    losing_nodes,
    weigh_words,
    word_of_bits,
    word_of_verdict,
)
from bisect_train.verdict.node_values import (
    LAST_SHIFT_LEVEL,
    SHIFT_LEVEL,
    OddNode,
    find_odd_failures,
    find_odd_values,
)
from bisect_train.verdict.outcome import Observation, OutcomeKind

MAX_ASKED, MAX_UNANSWERED = 8, 2  # times that one run is asked about, and that this is lost too often
NOBODY_ELSE = "no further node could decide which of them is wrong"
MAX_SAME_NODE = 2  # answers of the node that has spoken already, where no other one took the job

Twin = tuple[str, int]  # variant and seed: what must be the same for two runs to be one
VariantOf = Callable[[Point], Variant]


@dataclass(slots=True)
class Inquiry:
    """One run and what was said about it.

    Attributes:
        name: of the run, for a person.
        first: the observation that it is about; None where what counted of it was taken back.
        seen: (node, run) of those that are believed.
        num_asked: checks that have ended.
        num_unanswered: checks that were lost too often.
    """

    name: str
    first: Observation | None = None
    seen: list[tuple[str, Observation]] = field(default_factory=list)
    num_asked: int = 0
    num_unanswered: int = 0

    @property
    def is_early(self) -> bool:
        """Whether one of its runs was stopped early, so that there are no bits to compare."""
        return any(run.outcome.is_early for _, run in self.seen)

    @property
    def can_ask(self) -> bool:
        """Whether another run of it may be asked for."""
        return self.num_unanswered < MAX_UNANSWERED and self.num_asked < MAX_ASKED


class NodeWatch:
    """What one bisection knows of the nodes that run its probes.

    Args:
        question: what was asked.
        bisection_id: where events are stored.
        store: the caller holds the bisection's lock.

    Attributes:
        is_holding: whether the last plan's answer, if it had one, waits for a word of another node.
        has_taken_back: whether the last look took results back, so that everything is to be read anew.
        disagreement: why no answer is possible, "" while one is.
    """

    def __init__(self, question: Question, *, bisection_id: str, store: Store) -> None:
        self._question = question
        self._id = bisection_id
        self._store = store
        self._nodes: tuple[str, ...] = ()
        self._notes: set[str] = set()
        self._known_nodes: set[str] = set()
        self._suspects: dict[str, Why] = {}
        self._endings: list[tuple[str, bool]] = []
        self._lost_on: dict[str, set[str]] = {}
        self._asking: dict[Request, tuple[str, ...]] = {}
        self._inquiries: dict[Twin, Inquiry] = {}
        self.is_holding = False
        self.has_taken_back = False
        self.disagreement = ""

    @property
    def is_on(self) -> bool:
        """Whether there is more than one node now."""
        return len(self._nodes) > 1

    @property
    def is_cluster(self) -> bool:
        """Whether nodes were ever told of; otherwise it is one machine, and nothing of this module happens."""
        return bool(self._known_nodes)

    def load(self) -> None:
        """Take over what is stored: of this bisection, and whom the one that it is a part of does not believe."""
        events = read_events(self._store, self._id)
        above = read_events(self._store, self._question.part_of) if self._question.part_of else ()
        self._suspects = suspects_of((*above, *events))
        if not any(event.kind == NODES_SEEN for event in events):
            return
        for event in events:
            if event.kind == NODES_SEEN:
                self._known_nodes.update(event.data["nodes"])
                self._notes.update(event.data["notes"])
        nodes = {probe.key: probe.result.node for probe in self._store.results(self._id)}
        for event in events:
            if event.kind == PROBE_FINISHED:
                self._endings.append((nodes.get(event.data["key"], ""), False))
            elif event.kind == PROBE_LOST:
                self._take_loss(event.data["key"], str(event.data.get("node", "")))

    def meet(self, facts: MachineFacts) -> None:
        """Take note of the nodes that are there now; store those that are new, and what was said about the cluster."""
        self._nodes = facts.nodes
        if set(facts.nodes) <= self._known_nodes and set(facts.notes) <= self._notes:
            return
        self._known_nodes.update(facts.nodes)
        self._notes.update(facts.notes)
        self._store.append(self._id, NODES_SEEN, {"nodes": list(facts.nodes), "notes": list(facts.notes)})

    # ---- where probes run -----------------------------------------------------------------------------------------

    def note_finished(self, node: str) -> None:
        """Take note of a probe that came to its end, once its result is about to be stored."""
        self._endings.append((node, False))

    def note_lost(self, key: str, node: str) -> None:
        """Take note of a lost probe, which is stored already; a node that loses most of its probes is suspect from now on."""
        if not self.is_cluster:
            return
        self._take_loss(key, node)
        for name, (num_lost, num) in losing_nodes(self._endings).items():
            if name not in self._suspects and name in self._known_nodes:
                reason = f"{num_lost} of the last {num} probes on {name} were lost, and other nodes bring theirs to their end"
                self._suspect(name, Why.LOSES, reason)

    def _take_loss(self, key: str, node: str) -> None:
        self._endings.append((node, True))
        if node:
            self._lost_on.setdefault(key, set()).add(node)

    def is_wrong(self, node: str) -> bool:
        """Return whether what a node says is not believed, or nodes together of which one was among nodes that were wrong."""
        return share_a_node(node, (name for name, why in self._suspects.items() if why is Why.WRONG))

    def why_disbelieved(self, node: str) -> str:
        """Return why a result from a node is thrown away and its probe run again, "" if it counts."""
        return f"{node} gives wrong results" if self.is_wrong(node) else ""

    def avoid(self, key: str, request: Request, variant: Variant) -> tuple[str, ...]:
        """Return the nodes on which a run must not be made while there is another one.

        A repeat is made on another node than the run that it repeats, and the fresh runs of a state in a proof are spread.
        """
        if not (self.is_on or self._suspects):
            return ()
        must = set(self._asking.get(request, ()))
        may = set(self._lost_on.get(key, ()))
        spoken = self._inquiries.get((variant.id, request.seed_idx))
        if spoken is not None and request.repeat and request.part != NODE_CHECK:
            may.update(node for node, _ in spoken.seen)
        if request.attempt > 0:
            may.update(self._overused(request))
        wrong = {node for node, why in self._suspects.items() if why is Why.WRONG}
        for chosen in (must | may | set(self._suspects), must | set(self._suspects), must | wrong, wrong):
            if not chosen >= set(self._nodes):
                return tuple(sorted(chosen))
        return tuple(sorted(wrong))

    def _overused(self, request: Request) -> list[str]:
        """Return the nodes that made more fresh runs of a state than another one in the same attempt."""
        seen = (pair for inquiry in self._inquiries.values() for pair in inquiry.seen)
        alike = [node for node, run in seen if (run.attempt, run.point) == (request.attempt, request.point)]
        counts = Counter(alike)
        fewest = min((counts[node] for node in self._nodes if node not in self._suspects), default=0)
        return [node for node, num in counts.items() if num > fewest]

    # ---- who is believed ------------------------------------------------------------------------------------------

    def look(self, plan: Plan, knowledge: Knowledge, rules: Rules, variant_of: VariantOf) -> Plan:
        """Return the plan with the runs that another node must see first, its answer held back until then.

        Raises:
            MachineError: the store cannot be used.
        """
        self.is_holding = self.has_taken_back = False
        self.disagreement = ""
        if not self.is_on:
            return plan
        self._inquiries = self._inquire(knowledge, variant_of)
        weighed, is_noise = self._weigh(plan)
        odd = self._find_odd(plan, is_noise=is_noise)
        if blamed := self._blamed(weighed, odd):
            for node, reason in blamed.items():
                self._suspect(node, Why.WRONG, reason)
            self.has_taken_back = True
            return plan
        if reason := _why_split(weighed, odd):
            self.disagreement = reason
            self._store.append(self._id, NODES_DISAGREE, {"reason": reason})
            return replace(plan, phase=Phase.DONE, wanted=(), answer=answer_nodes(plan, reason))
        wanted = self._wanted(plan, knowledge, rules, weighed, variant_of, is_noise=is_noise)
        if not wanted:
            return plan
        self.is_holding = True
        phase = Phase.PROOF if plan.phase is Phase.DONE else plan.phase
        return replace(plan, phase=phase, wanted=(*wanted, *plan.wanted), answer=None)

    def _inquire(self, knowledge: Knowledge, variant_of: VariantOf) -> dict[Twin, Inquiry]:
        """Return what each node that is believed has said about each run."""
        found: dict[Twin, Inquiry] = {}
        keys: set[str] = set()
        for run, result in knowledge.seen():
            variant = variant_of(run.point)
            inquiry = found.setdefault((variant.id, run.seed_idx), Inquiry(f"{variant.commit[:8]}, seed {run.seed_idx}"))
            if inquiry.first is None or _order(run) < _order(inquiry.first):
                inquiry.first = run
            if result.node and result.job_id not in keys and not self.is_wrong(result.node):
                inquiry.seen.append((result.node, run))
                keys.add(result.job_id)
        for request, check in knowledge.checks():
            variant = variant_of(request.point)
            inquiry = found.setdefault(
                (variant.id, request.seed_idx), Inquiry(f"{variant.commit[:8]}, seed {request.seed_idx}")
            )
            inquiry.num_asked += 1
            if check is None:
                inquiry.num_unanswered += 1
            elif check[1].node and not self.is_wrong(check[1].node):
                inquiry.seen.append((check[1].node, check[0]))
        return found

    def _weigh(self, plan: Plan) -> tuple[dict[Twin, Weighed], bool]:
        """Return what the words about each run come to, and whether runs do not repeat themselves, so that there are none."""
        if not (self._question.metric.is_paired or plan.ends.is_flaky):
            words = {twin: self._words_of(inquiry, plan) for twin, inquiry in self._inquiries.items()}
            is_repeating = plan.ends.do_bits_repeat or any(do_two_agree(said) for said in words.values()) or None
            weighed = {twin: self._weigh_words(twin, said, is_repeating) for twin, said in words.items()}
            if is_repeating or not any(item.standing is Standing.NOISE for item in weighed.values()):
                return weighed, False
        none = {twin: weigh_words([(node, "") for node, _ in item.seen], nodes=()) for twin, item in self._inquiries.items()}
        return none, True

    def _words_of(self, inquiry: Inquiry, plan: Plan) -> list[tuple[str, str]]:
        """Return (node, word) of each run; where one was stopped early, what they are like is compared, and not their bits."""
        metric = self._question.metric
        if inquiry.is_early:
            return [(node, word_of_verdict(run, plan.ends, metric)) for node, run in inquiry.seen]
        return [(node, word_of_bits(run, plan.ends)) for node, run in inquiry.seen]

    def _weigh_words(self, twin: Twin, words: list[tuple[str, str]], is_repeating: bool | None) -> Weighed:
        # who loses probes is asked last: where the program may not repeat itself, the others are asked a second time first
        reliable = [node for node in self._nodes if node not in self._suspects]
        trusted = [node for node in self._nodes if not self.is_wrong(node)] if is_repeating else reliable
        return weigh_words(words, nodes=trusted, can_ask=self._inquiries[twin].can_ask, is_repeating=is_repeating)

    def _find_odd(self, plan: Plan, *, is_noise: bool) -> OddNode | None:
        """Return the node that is off, by its values and by how often runs fail there."""
        values: dict[str, list[tuple[str, float]]] = {}
        failures: dict[str, list[tuple[str, float]]] = {}
        for (variant, _), inquiry in self._inquiries.items():
            for node, run in inquiry.seen:
                if not run.outcome.is_early:
                    failures.setdefault(variant, []).append((node, float(run.outcome.kind is not OutcomeKind.MEASURED)))
                    if run.outcome.kind is OutcomeKind.MEASURED and run.outcome.value is not None:
                        values.setdefault(variant, []).append((node, run.outcome.value))
        is_last = plan.answer is not None and plan.answer.status not in PROVED
        level = LAST_SHIFT_LEVEL if is_last else SHIFT_LEVEL
        return find_odd_failures(failures) or (find_odd_values(values, shift_level=level) if is_noise else None)

    def _blamed(self, weighed: dict[Twin, Weighed], odd: OddNode | None) -> dict[str, str]:
        """Return whom two others contradict, with the reason."""
        if odd is not None and len(odd.others) > 1:
            return {odd.node: f"{odd.node} is unlike {_and(odd.others)}: {odd.how}"}
        blamed: dict[str, str] = {}
        for twin, item in weighed.items():
            others = _and(sorted(set(item.nodes) - set(item.wrong)))
            run = self._inquiries[twin].name
            for node in item.wrong:
                blamed.setdefault(node, f"{node} gave another result for the same run ({run}) than {others}, which agree")
        return blamed

    def _suspect(self, node: str, why: Why, reason: str) -> None:
        events = read_events(self._store, self._id)
        keys = {probe.key for probe in self._store.results(self._id) if probe.result.node == node}
        steps = [step for step in steps_to_undo(events) if why is Why.WRONG and _is_said_by(step, keys)]
        self._store.append(self._id, NODE_SUSPECT, {"node": node, "why": why.value, "reason": reason, **undo_event(steps)})
        self._suspects[node] = why

    def _wanted(
        self,
        plan: Plan,
        knowledge: Knowledge,
        rules: Rules,
        weighed: dict[Twin, Weighed],
        variant_of: VariantOf,
        *,
        is_noise: bool,
    ) -> list[Request]:
        """Return the checks that are due, the most urgent first, and remember who must not be asked."""
        node_of = {request_of(run): result.node for run, result in knowledge.seen()}
        runs = [run for run, _ in knowledge.seen()]
        deciding = deciding_runs(plan, runs, rules, node_of=lambda run: node_of[request_of(run)], is_noise=is_noise)
        due = [twin for twin, item in weighed.items() if item.standing is Standing.OPEN]
        due += [twin for run in deciding if self._is_alone(twin := (variant_of(run.point).id, run.seed_idx), weighed)]
        asking: dict[Request, tuple[str, ...]] = {}
        for twin in dict.fromkeys(due):
            first = self._inquiries[twin].first
            if first is not None:
                number = CHECK_REPEAT + self._inquiries[twin].num_asked
                asking[Request(first.point, first.seed_idx, number, part=NODE_CHECK)] = weighed[twin].avoid
        self._asking = asking
        return list(asking)

    def _is_alone(self, twin: Twin, weighed: dict[Twin, Weighed]) -> bool:
        """Return whether one node alone has told of a run, and another one can be asked."""
        item, inquiry = weighed[twin], self._inquiries[twin]
        if item.standing is not Standing.ALONE or not inquiry.can_ask:
            return False
        num_unanswered = sum(other.num_unanswered for other in self._inquiries.values())
        deaf = self._suspects if num_unanswered >= MAX_UNANSWERED else ()  # who only loses probes is asked no more
        others = [node for node in self._nodes if not (node in item.nodes or node in deaf or self.is_wrong(node))]
        return bool(others) and inquiry.num_asked < MAX_SAME_NODE


def _why_split(weighed: dict[Twin, Weighed], odd: OddNode | None) -> str:
    """Return why nobody can tell who is right, "" where there is no such doubt."""
    if odd is not None:
        return f"{_and([odd.node, *odd.others])} contradict each other, and {NOBODY_ELSE} ({odd.node}: {odd.how})"
    split = [item for item in weighed.values() if item.standing is Standing.SPLIT]
    return f"{_and(sorted(split[0].nodes))} give different results for the same run, and {NOBODY_ELSE}" if split else ""


def _is_said_by(step: Sequence[StoredEvent], keys: Collection[str]) -> bool:
    """Return whether a result comes from some keys and is no check, which no search counts."""
    first = step[0]
    return first.kind in WITH_RESULT and first.data["key"] in keys and first.data["spec"].get("part") != NODE_CHECK


def _order(run: Observation) -> tuple[int, int, int, int]:
    return abs(run.part), run.attempt, run.seed_idx, run.repeat


def _and(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"
