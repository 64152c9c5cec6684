"""Which nodes of a cluster are believed: losses, words about one run, values and failures where runs do not repeat."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.core.changes import Point
from bisect_train.core.question import Metric
from bisect_train.search.node_checks import NODE_CHECK, deciding_runs
from bisect_train.search.terms import Answer, Phase, Plan, Rules
from bisect_train.verdict.end_terms import EndRules, Ends, EndsStatus
from bisect_train.verdict.evidence import Evidence, VerdictKind
from bisect_train.verdict.node_trust import Standing, losing_nodes, weigh_words
from bisect_train.verdict.node_values import find_odd_failures, find_odd_values
from bisect_train.verdict.outcome import Observation, Outcome, OutcomeKind

NODES = ("a", "b", "c")


# ---- losses -------------------------------------------------------------------------------------------------------


def endings(text: str) -> list[tuple[str, bool]]:
    """Return what `aAbB` says: a capital was lost."""
    return [(letter.lower(), letter.isupper()) for letter in text]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("AbAbA", ["a"]),  # its first three
        ("aabAbAbA", ["a"]),  # three of its last four
        ("AbAb", []),  # too few
        ("AAA", []),  # nobody else ran: it may be the program
        ("AABBA", []),  # others lose theirs, too
        ("AbAbabaAb", []),  # no four in a row hold three
        ("AbAbABBB", ["a"]),  # what was found stays found, however the others go on
    ],
)
def test_node_that_loses_most_of_its_last_probes_is_named(text: str, found: list[str]) -> None:
    assert sorted(losing_nodes(endings(text))) == found


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", ""]), st.booleans()), max_size=16))
def test_losing_nodes_are_only_added_to_as_probes_end(seen: list[tuple[str, bool]]) -> None:
    found: dict[str, tuple[int, int]] = {}
    for num in range(len(seen) + 1):
        now = losing_nodes(seen[:num])
        assert found.items() <= now.items()
        assert all(name and num_lost >= 3 for name, (num_lost, _) in now.items())
        found = now


# ---- words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "standing", "wrong"),
    [
        ([("a", "x")], Standing.ALONE, ()),
        ([("a", "x"), ("a", "x")], Standing.ALONE, ()),
        ([("a", "x"), ("b", "x")], Standing.AGREED, ()),
        ([("a", "x"), ("b", "")], Standing.AGREED, ()),
        ([("a", "x"), ("b", "y")], Standing.OPEN, ()),
        ([("a", "x"), ("b", "y"), ("c", "y")], Standing.MAJORITY, ("a",)),
        ([("a", "x"), ("a", "y"), ("b", "x"), ("c", "x")], Standing.MAJORITY, ("a",)),
        ([("a", "x"), ("a", "y")], Standing.OPEN, ()),
        ([("a", "x"), ("b", "y"), ("c", "z")], Standing.NOISE, ()),
    ],
)
def test_words_about_one_run(words: list[tuple[str, str]], standing: Standing, wrong: tuple[str, ...]) -> None:
    weighed = weigh_words(words, nodes=NODES)
    assert (weighed.standing, weighed.wrong) == (standing, wrong)


def test_two_nodes_that_contradict_each_other_are_split_where_runs_repeat() -> None:
    assert weigh_words([("a", "x"), ("b", "y")], nodes=("a", "b"), is_repeating=True).standing is Standing.SPLIT


def test_third_node_is_asked_and_not_one_that_has_spoken() -> None:
    weighed = weigh_words([("a", "x"), ("b", "y")], nodes=NODES, is_repeating=True)
    assert weighed.standing is Standing.OPEN
    assert set(weighed.avoid) == {"a", "b"}


def test_two_nodes_are_each_asked_again_before_one_calls_it_noise() -> None:
    words = [("a", "x"), ("b", "y")]
    first = weigh_words(words, nodes=("a", "b"))
    assert (first.standing, first.avoid) == (Standing.OPEN, ("b",))
    second = weigh_words([*words, ("a", "x")], nodes=("a", "b"))
    assert (second.standing, second.avoid) == (Standing.OPEN, ("a",))
    assert weigh_words([*words, ("a", "x"), ("b", "z")], nodes=("a", "b")).standing is Standing.NOISE
    assert weigh_words([*words, ("a", "x"), ("b", "y")], nodes=("a", "b")).standing is Standing.SPLIT


def test_nobody_is_asked_where_checks_are_lost() -> None:
    assert weigh_words([("a", "x"), ("b", "y")], nodes=NODES, can_ask=False, is_repeating=True).standing is Standing.SPLIT


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("xyz")), min_size=1, max_size=10))
def test_only_nodes_that_two_steady_others_contradict_are_wrong(words: list[tuple[str, str]]) -> None:
    weighed = weigh_words(words, nodes="abcde", is_repeating=True)
    assert weighed == weigh_words(words, nodes="abcde", is_repeating=True)
    for node in weighed.wrong:
        own = {word for name, word in words if name == node}
        others = {name for name, _ in words} - set(weighed.wrong)
        assert len(others) >= 2
        assert len({word for name, word in words if name in others}) == 1
        assert own != {word for name, word in words if name in others}


# ---- where runs do not repeat themselves --------------------------------------------------------------------------


def values_of(shift: float, *, seed: int, num: int = 4) -> dict[str, list[tuple[str, float]]]:
    rng = np.random.default_rng(seed)
    return {
        variant: [(node, mean + float(rng.normal()) + (shift if node == "b" else 0.0)) for _ in range(num) for node in NODES]
        for variant, mean in (("good", 0.0), ("bad", 30.0))
    }


@pytest.mark.parametrize("shift", [30.0, -30.0, 8.0])
def test_node_whose_values_are_off_is_found(shift: float) -> None:
    for seed in range(20):
        odd = find_odd_values(values_of(shift, seed=seed))
        assert odd is not None
        assert (odd.node, odd.others) == ("b", ("a", "c"))


def test_honest_nodes_are_hardly_ever_called_odd() -> None:
    assert sum(find_odd_values(values_of(0.0, seed=seed)) is not None for seed in range(400)) <= 1


def test_one_outlier_is_no_odd_node() -> None:
    values = values_of(0.0, seed=1)
    values["good"][1] = ("b", 50.0)
    assert find_odd_values(values) is None


def test_node_on_which_every_run_fails_is_found() -> None:
    told = {variant: [(node, float(node == "c")) for node in NODES for _ in range(4)] for variant in ("good", "bad", "mid")}
    odd = find_odd_failures(told)
    assert odd is not None
    assert (odd.node, odd.others) == ("c", ("a", "b"))
    assert "12 of its 12 runs failed, and 0 of 24 elsewhere" in odd.how


def test_failures_that_come_and_go_everywhere_blame_no_node() -> None:
    rng = np.random.default_rng(5)
    for _ in range(100):
        told = {f"v{idx}": [(node, float(rng.random() < 0.5)) for node in NODES for _ in range(3)] for idx in range(6)}
        assert find_odd_failures(told) is None


# ---- which runs are seen again ------------------------------------------------------------------------------------


def run(version: int, *, seed_idx: int = 0, value: float = 1.0, attempt: int = 0, failed: str = "") -> Observation:
    kind = OutcomeKind.FAILED if failed else OutcomeKind.MEASURED
    outcome = Outcome(kind, None if failed else value, f"{version}:{seed_idx}:{value}", signature=failed)
    return Observation(Point(version), seed_idx, 0, attempt, -1, outcome)


RULES = Rules(num_changes=8, ends=EndRules(Metric("loss")))
ENDS = Ends(EndsStatus.SEPARATED)


def plan_of(verdicts: dict[int, VerdictKind], answer: Answer | None = None) -> Plan:
    evidence = {version: Evidence(kind, 7.0, 1) for version, kind in verdicts.items()}
    return Plan(Phase.SEARCH, (), ENDS, evidence=evidence, answer=answer)


def test_version_that_contradicts_most_others_is_seen_again_first() -> None:
    shown = {2: VerdictKind.BAD, 4: VerdictKind.GOOD, 6: VerdictKind.GOOD, 7: VerdictKind.BAD}
    found = deciding_runs(plan_of(shown), [run(version) for version in shown], RULES, node_of=lambda item: "a")
    assert [item.point.prefix for item in found] == [2, 4, 6]


def test_history_without_contradiction_is_not_seen_again() -> None:
    for num_good in range(8):
        shown = {version: VerdictKind.GOOD if version < num_good else VerdictKind.BAD for version in range(9)}
        assert deciding_runs(plan_of(shown), [run(version) for version in shown], RULES, node_of=lambda item: "a") == []


def test_repeat_that_shows_that_runs_repeat_themselves_is_seen_by_another_node() -> None:
    again = Observation(Point(0), 0, 1, 0, -1, run(0).outcome)
    assert deciding_runs(plan_of({}), [run(0), again], RULES, node_of=lambda item: "a") == [again]
    assert deciding_runs(plan_of({}), [run(0), again], RULES, node_of=lambda item: "a", is_noise=True) == []


def test_first_fresh_run_of_each_state_on_each_node_is_seen_again() -> None:
    runs = [run(version, seed_idx=seed, attempt=1) for version, seed in itertools.product((3, 4), range(3))]
    node_of = {runs[0]: "a", runs[1]: "b", runs[2]: "a"}
    found = deciding_runs(plan_of({}), runs, RULES, node_of=lambda item: node_of.get(item, "c"))
    assert found == [runs[0], runs[1], runs[3]]
    noise = deciding_runs(plan_of({}), runs, RULES, node_of=lambda item: node_of.get(item, "c"), is_noise=True)
    assert noise == [runs[3]]  # one node alone ran that state


def test_runs_without_a_node_are_never_asked_about() -> None:
    runs = [run(2, attempt=1), run(4, failed="ValueError")]
    assert deciding_runs(plan_of({}), runs, RULES, node_of=lambda item: "") == []


def test_extremes_of_the_ends_are_seen_again_before_no_culprit_is_the_answer() -> None:
    runs = [run(0, seed_idx=seed, value=value) for seed, value in enumerate((1.0, 9.0, 0.5, 1.1))]
    found = deciding_runs(plan_of({}, Answer("not_reproduced", "")), runs, RULES, node_of=lambda item: "a")
    assert found == [runs[2], runs[1]]


def test_run_that_fails_is_seen_again_where_values_decide() -> None:
    runs = [run(2), run(4, failed="ValueError"), run(4, seed_idx=1, failed="ValueError")]
    plan = plan_of({})
    assert deciding_runs(plan, runs, RULES, node_of=lambda item: "a") == []  # the criterion is not known yet


def test_checks_are_a_part_of_their_own() -> None:
    assert NODE_CHECK < 0


def test_nodes_that_speak_together_are_one_witness_and_those_that_share_one_too() -> None:
    nodes = ("a + b", "c + d")
    words = [("a + c", "x"), ("b + d", "y"), ("a + b", "x")]
    assert weigh_words(words, nodes=nodes, is_repeating=True).standing is Standing.SPLIT, "a has spoken twice"
    assert weigh_words([("a + c", "x"), ("a + b", "x")], nodes=nodes).standing is Standing.ALONE
    assert weigh_words([("a + b", "x"), ("c + d", "x")], nodes=nodes).standing is Standing.AGREED
    both = weigh_words([("a + b", "x"), ("c + d", "y"), ("e + f", "y")], nodes=(*nodes, "e + f"))
    assert (both.standing, both.wrong) == (Standing.MAJORITY, ("a + b",))
