"""Which nodes of a cluster can be trusted: which lose probes again and again, and whose word others contradict. Pure.

A lost probe says nothing of its variant; a node that loses most of its last probes while the others do not is avoided.

The same run (variant, seed, rung) on two nodes of one hardware class is one question put to two witnesses. Where runs repeat
bit for bit their words are the bits, and the first contradiction asks for a third witness: the majority holds. Where they do
not, single runs say little, and all that a node said is held against the others (`verdict.node_values`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from bisect_train.core.probe import share_a_node
from bisect_train.core.question import Metric
from bisect_train.core.verdict import Criterion, VerdictKind
from bisect_train.verdict.end_terms import Ends, EndsStatus
from bisect_train.verdict.evidence import judge_variant
from bisect_train.verdict.outcome import Observation, OutcomeKind

LAST_PROBES, MAX_LOST = 4, 3
MAX_WITNESSES = 5
"""Nodes that are asked about one run, at most."""

NUM_UNLIKE = 3
"""Nodes that all say different things where a run does not repeat itself."""

BITS = "bits "
OF_VALUES = (Criterion.EXACT, Criterion.STATISTICAL)
UNTESTABLE = (EndsStatus.GOOD_UNTESTABLE, EndsStatus.BAD_UNTESTABLE, EndsStatus.NO_METRIC)
Ended = tuple[str, bool]
"""Where a probe ended, and whether it was lost there."""


def losing_nodes(endings: Sequence[Ended]) -> dict[str, tuple[int, int]]:
    """Return the nodes that lost most of their last probes at some moment, while the others did not.

    A node is named where it lost at least 3 of its last 4 probes (or its first 3) and, since the first of these, another node
    brought at least one probe to its end and the others together lost at most half of theirs.

    Args:
        endings: in the order in which they came; "" for an unknown node says nothing.
    Returns:
        Lost probes and probes of that moment, by node.
    """
    found: dict[str, tuple[int, int]] = {}
    for end in range(MAX_LOST, len(endings) + 1):
        node, is_lost = endings[end - 1]
        if node and is_lost and node not in found and (shown := _losses_of(node, endings[:end])):
            found[node] = shown
    return found


def _losses_of(node: str, endings: Sequence[Ended]) -> tuple[int, int] | None:
    places = [idx for idx, (name, _) in enumerate(endings) if name == node][-LAST_PROBES:]
    num_lost = sum(endings[idx][1] for idx in places)
    others = [is_lost for name, is_lost in endings[places[0] :] if name not in ("", node)]
    are_others_well = len(others) > sum(others) and 2 * sum(others) <= len(others)
    return (num_lost, len(places)) if num_lost >= MAX_LOST and are_others_well else None


# ---- words --------------------------------------------------------------------------------------------------------


def word_of_bits(run: Observation, ends: Ends) -> str:
    """Return what a run says where runs repeat bit for bit, "" where it says nothing of its node.

    A run that was stopped early has no bits of its own. A failure counts where values decide, or where it keeps an end from
    being tested; where failing is what was asked about it may come and go, and is compared by its rate.
    """
    outcome = run.outcome
    if outcome.is_early or outcome.judge is not None:
        return ""
    if outcome.kind is OutcomeKind.MEASURED:
        return f"{BITS}{outcome.digest}" if outcome.digest else f"value {outcome.value!r}"
    is_foreign = ends.criterion in OF_VALUES or ends.status in UNTESTABLE
    return f"{outcome.kind.value} {outcome.signature}".strip() if is_foreign else ""


def do_two_agree(words: Sequence[tuple[str, str]]) -> bool:
    """Return whether two nodes gave the same bits for a run, so that runs repeat themselves."""
    nodes_of: dict[str, set[str]] = {}
    for node, word in words:
        nodes_of.setdefault(word, set()).add(node)
    return any(word.startswith(BITS) and len(nodes) > 1 for word, nodes in nodes_of.items())


def word_of_verdict(run: Observation, ends: Ends, metric: Metric) -> str:
    """Return what a run alone says by the evidence of the search, "" where it decides nothing or the ends are open."""
    if ends.status is not EndsStatus.SEPARATED:
        return ""
    verdict = judge_variant([run], ends, metric).verdict
    return str(verdict.value) if verdict in (VerdictKind.GOOD, VerdictKind.BAD) else ""


class Standing(str, Enum):
    """What the words about one run come to."""

    ALONE = "alone"  # one node has said something
    AGREED = "agreed"  # two nodes say the same, or nothing can be said
    OPEN = "open"  # they contradict each other, and one more can be asked
    MAJORITY = "majority"  # two or more agree against the rest
    SPLIT = "split"  # they contradict each other, and nobody is left to ask
    NOISE = "noise"  # this run does not repeat itself


@dataclass(frozen=True, slots=True)
class Weighed:
    """The words about one run.

    Attributes:
        standing: see Standing.
        avoid: OPEN, ALONE: the nodes that must not be asked next.
        wrong: MAJORITY: the nodes that the others contradict.
        nodes: that have said something.
    """

    standing: Standing
    avoid: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


def weigh_words(
    words: Sequence[tuple[str, str]], *, nodes: Collection[str], can_ask: bool = True, is_repeating: bool | None = None
) -> Weighed:
    """Return what the words about one run come to. Of nodes that speak together, those that share one speak once: the first.

    Args:
        words: (node, word) of trusted nodes; "" is a word that decides nothing.
        nodes: trusted nodes that are there.
        can_ask: whether one more run of it may be asked for.
        is_repeating: whether runs are known to repeat themselves; None asks each node a second time before nodes are blamed
            that all say different things.
    """
    said: dict[str, set[str]] = {}
    for node, word in words:
        if node in said or not share_a_node(node, said):
            said.setdefault(node, set()).add(word)
    spoken = tuple(dict.fromkeys(node for node, _ in words))
    if len({word for node_words in said.values() for word in node_words} - {""}) <= 1:
        return Weighed(Standing.AGREED if len(said) > 1 else Standing.ALONE, avoid=spoken, nodes=spoken)
    steady = {node: next(iter(own)) for node, own in said.items() if len(own) == 1}
    if wrong := _contradicted(said, steady):
        return Weighed(Standing.MAJORITY, wrong=wrong, nodes=spoken)
    if len(set(steady.values()) - {""}) >= NUM_UNLIKE:
        return Weighed(Standing.NOISE, nodes=spoken)
    if can_ask and len(said) < MAX_WITNESSES and any(not share_a_node(node, said) for node in nodes):
        return Weighed(Standing.OPEN, avoid=spoken, nodes=spoken)
    if is_repeating:
        return Weighed(Standing.SPLIT, nodes=spoken)
    if len(steady) < len(said):
        return Weighed(Standing.NOISE, nodes=spoken)
    counts = Counter(node for node, _ in words)
    once = [node for node in said if counts[node] == 1 and node in nodes]
    if can_ask and once:
        return Weighed(Standing.OPEN, avoid=tuple(node for node in nodes if node != once[0]), nodes=spoken)
    return Weighed(Standing.SPLIT, nodes=spoken)


def _contradicted(said: Mapping[str, Collection[str]], steady: Mapping[str, str]) -> tuple[str, ...]:
    """Return the nodes that say anything but what most of the steady ones say, () without two that agree and outnumber them."""
    votes = Counter(word for word in steady.values() if word).most_common(2)
    if not votes or votes[0][1] < 2 or (len(votes) > 1 and votes[1][1] == votes[0][1]):
        return ()
    holds = votes[0][0]
    return tuple(node for node, own in said.items() if any(word not in (holds, "") for word in own))
