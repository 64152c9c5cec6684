"""The loop of a bisection on several nodes: lost probes go elsewhere, a node that gives wrong results is not believed."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.coordinator import load_state
from bisect_train.coordinator.node_events import Why, node_histories, notes_of
from bisect_train.core.errors import InterruptedByUser, MachineError
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeJob, ProbeSpec
from bisect_train.search.node_checks import NODE_CHECK
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SIMULATED_FACTS, SimulatedExecutor, SimulatedNode, SimulatedRun
from tests.support.simulated_bisection import (
    Lab,
    assert_isolated,
    drive,
    essence_of,
    fingerprint_of,
    keys_of,
    kinds_of,
    limits,
    module_lab,
    stop_after,
    store_at,
)
from tests.support.simulated_cluster import NOTES, cluster, honest, now_and_then, shifted, suspects

lab = module_lab
CRASH = Ending(EndingKind.CRASHED, "RuntimeError: no CUDA device", exit_status=1)


def crashing(job: ProbeJob, true: Fingerprint) -> Fingerprint:
    return replace(true, ending=CRASH)


def stale(job: ProbeJob, true: Fingerprint) -> Fingerprint:
    """Whatever is asked for, the bad end's record comes back."""
    return fingerprint_of(2.0, seed_idx=job.spec.seed_idx)


def with_bad(place: int, bad: SimulatedNode, num: int = 3) -> list[SimulatedNode]:
    nodes = honest(*"abcdef"[: num - 1])
    return [*nodes[:place], bad, *nodes[place:]]


def num_checks(store: MemoryStore, name: str) -> int:
    return sum(probe.spec["part"] == NODE_CHECK for probe in store.results(name))


# ---- nothing changes without a fault ------------------------------------------------------------------------------


def test_one_machine_runs_the_same_probes_as_a_cluster_of_which_nothing_is_told(lab: Lab) -> None:
    seen = []
    for nodes in ((), honest("a", slots=2)):
        store = MemoryStore()
        specs: list[ProbeSpec] = []

        def script(job: ProbeJob, specs: list[ProbeSpec] = specs) -> SimulatedRun:
            specs.append(job.spec)
            assert not job.avoid
            return SimulatedRun(fingerprint_of(lab.level_of(job), seed_idx=job.spec.seed_idx), 1.0 + len(specs) % 3)

        name, ended = drive(lab, store, executor=SimulatedExecutor(script, slots=2, nodes=nodes))
        assert_isolated(lab, ended)
        seen.append(specs)
        assert num_checks(store, name) == 0
    assert seen[0] == seen[1]


def test_answer_of_honest_nodes_has_the_word_of_two_of_them(lab: Lab) -> None:
    store = MemoryStore()
    name, ended = drive(lab, store, executor=cluster(lab, honest(*"abcd")))
    assert_isolated(lab, ended)
    assert suspects(store, name) == {}
    said = defaultdict(set)
    for probe in store.results(name):
        said[probe.spec["variant"], probe.spec["seed_idx"]].add(probe.result.node)
    proofs = [probe.spec for probe in store.results(name) if probe.spec["attempt"] > 0]
    assert proofs
    assert all(len(said[spec["variant"], spec["seed_idx"]]) >= 2 for spec in proofs)
    assert num_checks(store, name) <= 6


@pytest.mark.parametrize("slots", [2, 4])
def test_repeat_is_run_on_another_node(lab: Lab, slots: int) -> None:
    """With many slots the repeat is begun together with its first run, and a third run makes up for it."""
    store = MemoryStore()
    name, _ = drive(lab, store, executor=cluster(lab, honest("a", "b", slots=slots)))
    nodes: dict[str, dict[int, str]] = defaultdict(dict)
    for probe in store.results(name):
        if probe.spec["seed_idx"] == 0:
            nodes[probe.spec["variant"]][probe.spec["repeat"]] = probe.result.node
    repeated = [places for places in nodes.values() if 1 in places]
    assert len(repeated) == 2
    assert all(set(places.values()) == {"a", "b"} for places in repeated)
    assert slots > 2 or all(len(places) == 2 for places in repeated)


# ---- lost ---------------------------------------------------------------------------------------------------------


def test_node_that_loses_its_probes_is_avoided_and_blames_nobody(lab: Lab) -> None:
    store = MemoryStore()
    bad = SimulatedNode("lossy", loses=lambda job: True)
    name, ended = drive(lab, store, executor=cluster(lab, with_bad(0, bad)))
    assert_isolated(lab, ended)
    assert suspects(store, name) == {"lossy": "loses"}
    assert len(keys_of(store, name, "probe_lost")) == 3
    assert kinds_of(store, name)["given_up"] == 0
    again = [key for key in keys_of(store, name, "probe_lost") if key in keys_of(store, name, "probe_finished")]
    assert again, "what was lost there was run elsewhere"


def test_probe_lost_on_one_node_is_run_again_on_another(lab: Lab) -> None:
    store = MemoryStore()
    nodes = [SimulatedNode(name, loses=lambda job, name=name: job.spec.seed_idx == 1 and name != "c") for name in "abc"]
    name, ended = drive(lab, store, executor=cluster(lab, nodes))
    assert_isolated(lab, ended)
    places = defaultdict(list)
    for event in store.events(name):
        if event.kind == "probe_lost":
            places[event.data["key"]].append(event.data["node"])
    assert places
    assert all(len(set(lost)) == len(lost) for lost in places.values())


def test_node_that_only_loses_probes_is_not_asked_for_ever(lab: Lab) -> None:
    store = MemoryStore()
    bad = SimulatedNode("lossy", loses=lambda job: True)
    name, ended = drive(lab, store, executor=cluster(lab, [bad, *honest("a")]))
    assert_isolated(lab, ended)
    assert suspects(store, name) == {"lossy": "loses"}
    assert len(keys_of(store, name, "probe_lost")) <= 12


def test_node_that_dies_loses_nothing_and_a_new_one_is_used(lab: Lab) -> None:
    store = MemoryStore()
    nodes = [SimulatedNode("a", dies_at_s=4.5), SimulatedNode("b"), SimulatedNode("new", joins_at_s=6.0)]
    name, ended = drive(lab, store, executor=cluster(lab, nodes))
    assert_isolated(lab, ended)
    assert {probe.result.node for probe in store.results(name)} == {"a", "b", "new"}
    reasons = [event.data["reason"] for event in store.events(name) if event.kind == "probe_lost"]
    assert reasons == ["the node a died"]


def test_cluster_without_any_node_is_an_error_and_resume_finishes(lab: Lab) -> None:
    store = MemoryStore()
    gone = [SimulatedNode(name, dies_at_s=7.5) for name in "ab"]
    with pytest.raises(MachineError, match="no node of the cluster is left"):
        drive(lab, store, executor=cluster(lab, gone))
    first = store.list()[0].id
    finished = set(keys_of(store, first, "probe_finished"))
    assert finished
    executor = cluster(lab, honest("c", "d"))
    _, ended = drive(lab, store, bisection_id=first, executor=executor)
    assert_isolated(lab, ended)
    assert not finished.intersection(executor.submitted)


# ---- wrong --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("distorts", [shifted(1.0), shifted(-1.0), stale, crashing])
def test_node_that_gives_wrong_results_is_named_and_the_answer_is_right(lab: Lab, place: int, distorts) -> None:  # type: ignore[no-untyped-def]
    store = MemoryStore()
    bad = SimulatedNode("bad", distorts=distorts)
    name, ended = drive(lab, store, executor=cluster(lab, with_bad(place, bad)))
    assert_isolated(lab, ended)
    assert suspects(store, name) == {"bad": "wrong"}
    asked = load_state(store, name, lab.question())
    assert not any(probe.result.node == "bad" for probe in asked.probes), "nothing that it said counts"
    assert asked.plan(lab.question(), lab.space(lab.question())).answer == ended.answer


@pytest.mark.parametrize("seed", range(4))
def test_node_that_is_wrong_now_and_then_changes_no_answer(lab: Lab, seed: int) -> None:
    store = MemoryStore()
    bad = SimulatedNode("bad", distorts=now_and_then(1.0, share=0.4, seed=seed))
    name, ended = drive(lab, store, executor=cluster(lab, with_bad(seed % 3, bad, num=4)))
    assert_isolated(lab, ended)
    assert set(suspects(store, name)) <= {"bad"}


def test_two_nodes_that_contradict_each_other_leave_no_answer_and_a_third_one_decides(lab: Lab) -> None:
    store = MemoryStore()
    bad = SimulatedNode("bad", distorts=shifted(1.0))
    name, ended = drive(lab, store, executor=cluster(lab, with_bad(0, bad, num=2)))
    assert not ended.answer.culprits
    assert ended.answer.status == "failed"
    assert "a and bad" in ended.answer.reason
    assert "no further node could decide" in ended.answer.reason
    question = lab.question()
    assert load_state(store, name, question).plan(question, lab.space(question)).answer == ended.answer
    _, ended = drive(lab, store, bisection_id=name, executor=cluster(lab, with_bad(0, bad, num=3)))
    assert_isolated(lab, ended)
    assert suspects(store, name) == {"bad": "wrong"}


def test_results_of_a_wrong_node_are_not_taken_over_from_another_bisection(lab: Lab) -> None:
    store = MemoryStore()
    bad = SimulatedNode("bad", distorts=shifted(1.0))
    with pytest.raises(InterruptedByUser):
        drive(lab, store, executor=cluster(lab, [bad]), listener=stop_after(8))
    assert any(probe.result.node == "bad" for probe in store.results(store.list()[0].id))
    name, ended = drive(lab, store, executor=cluster(lab, with_bad(0, bad)))
    assert_isolated(lab, ended)
    reused = {event.data["key"] for event in store.events(name) if event.kind == "probe_reused"}
    assert reused
    counts = {probe.key for probe in load_state(store, name, lab.question()).probes}
    assert not reused & counts


LOSES_ALL = SimulatedNode("lossy", loses=lambda job: True)


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        (honest(*"abc"), {}),
        (honest(*"ab"), {}),
        ([*honest("a"), LOSES_ALL, *honest("b")], {"lossy": "loses"}),
        ([*honest("a"), SimulatedNode("bad", distorts=shifted(1.0)), *honest(*"bc")], {"bad": "wrong"}),
    ],
)
def test_program_that_does_not_repeat_itself_is_no_wrong_node(
    lab: Lab, nodes: list[SimulatedNode], found: dict[str, str]
) -> None:
    num_runs = itertools.count()  # no two runs have the same bits

    def noisy(job: ProbeJob) -> SimulatedRun:
        fingerprint = fingerprint_of(lab.level_of(job), seed_idx=job.spec.seed_idx, salt=str(next(num_runs)))
        return SimulatedRun(fingerprint, 1.0)

    store = MemoryStore()
    name, ended = drive(lab, store, executor=SimulatedExecutor(noisy, nodes=nodes))
    assert_isolated(lab, ended)
    assert suspects(store, name) == found


FAILS = Ending(EndingKind.CRASHED, "ValueError: loss is nan", exit_status=1)


def failing(lab: Lab, *, rate: float = 1.0) -> Callable[[ProbeJob], SimulatedRun]:
    """Return a script by which the culprit makes a share of the runs fail, whatever their seed."""
    rng = random.Random(3)

    def script(job: ProbeJob) -> SimulatedRun:
        does_fail = lab.culprit in lab.parts_of(job) and rng.random() < rate
        return SimulatedRun(fingerprint_of(1.0, seed_idx=job.spec.seed_idx, ending=FAILS if does_fail else None))

    return script


@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("does_fail", [True, False])
def test_node_on_which_everything_or_nothing_fails_is_named(lab: Lab, place: int, does_fail: bool) -> None:
    def distort(job: ProbeJob, true: Fingerprint) -> Fingerprint:
        return fingerprint_of(1.0, seed_idx=job.spec.seed_idx, ending=FAILS if does_fail else None)

    store = MemoryStore()
    nodes = with_bad(place, SimulatedNode("bad", distorts=distort))
    name, ended = drive(lab, store, executor=SimulatedExecutor(failing(lab), nodes=nodes))
    assert_isolated(lab, ended)
    assert suspects(store, name) == {"bad": "wrong"}


def test_failure_that_comes_and_goes_blames_no_node(lab: Lab) -> None:
    store = MemoryStore()
    executor = SimulatedExecutor(failing(lab, rate=0.85), nodes=honest(*"abc"))
    name, ended = drive(lab, store, executor=executor)
    assert_isolated(lab, ended)
    assert suspects(store, name) == {}


def test_versions_that_do_not_repeat_themselves_do_not_stop_the_others(lab: Lab) -> None:
    """From a harmless commit on runs differ a little each time; both ends of the proof show it, the good end does not."""
    num_runs = itertools.count()

    def script(job: ProbeJob) -> SimulatedRun:
        is_shaky = len(lab.parts_of(job)) in (lab.culprit, lab.culprit + 1)
        salt = str(next(num_runs)) if is_shaky else ""
        return SimulatedRun(fingerprint_of(lab.level_of(job), seed_idx=job.spec.seed_idx, salt=salt), 1.0)

    store = MemoryStore()
    name, ended = drive(lab, store, executor=SimulatedExecutor(script, nodes=honest(*"abcd")))
    assert_isolated(lab, ended)
    assert suspects(store, name) == {}


# ---- stored -------------------------------------------------------------------------------------------------------


def test_resume_at_many_events_gives_the_same_answer_and_runs_nothing_twice(lab: Lab) -> None:
    store = MemoryStore()
    bad = SimulatedNode("bad", distorts=shifted(1.0))
    name, ended = drive(lab, store, executor=cluster(lab, with_bad(1, bad)))
    num_events = len(store.events(name))
    for num in range(1, num_events, 10):
        copy = store_at(store, name, num)
        finished = set(keys_of(copy, name, "probe_finished"))
        executor = cluster(lab, with_bad(1, bad))
        _, again = drive(lab, copy, bisection_id=name, executor=executor)
        assert essence_of(again) == essence_of(ended), num
        assert not finished.intersection(executor.submitted), num
        assert suspects(copy, name) == {"bad": "wrong"}, num


def test_budget_that_leaves_no_word_of_a_second_node_proves_nothing(lab: Lab) -> None:
    store = MemoryStore()
    name, _ = drive(lab, store, executor=cluster(lab, honest("a", "b")))
    parts = [event.data["spec"]["part"] for event in store.events(name) if event.kind == "probe_finished"]
    num_before = len(parts) - 1 - parts[::-1].index(NODE_CHECK)  # all but the last check
    question = lab.question(limits=limits(max_probes=num_before))
    store = MemoryStore()
    name, ended = drive(lab, store, question=question, executor=cluster(lab, honest("a", "b")))
    assert ended.answer.status == "budget"
    assert load_state(store, name, question).plan(question, lab.space(question)).answer == ended.answer


def test_history_of_the_nodes_is_what_happened(lab: Lab) -> None:
    store = MemoryStore()
    nodes = [SimulatedNode("lossy", loses=lambda job: True), *honest("b", "c")]
    executor = cluster(lab, nodes, facts=replace(SIMULATED_FACTS, notes=NOTES))
    name, _ = drive(lab, store, executor=executor)
    node_of = {probe.key: probe.result.node for probe in store.results(name)}
    seen = {item.name: item for item in node_histories(store.events(name), node_of)}
    assert set(seen) == {"b", "c", "lossy"}
    assert (seen["lossy"].num_finished, seen["lossy"].num_lost, seen["lossy"].why) == (0, 3, Why.LOSES)
    assert seen["b"].num_finished + seen["c"].num_finished == kinds_of(store, name)["probe_finished"]
    assert "were lost" in seen["lossy"].reason
    assert notes_of(store.events(name)) == NOTES


def test_one_machine_stores_nothing_about_nodes(lab: Lab, tmp_path: Path) -> None:
    store = MemoryStore()
    name, _ = drive(lab, store)
    assert not {"nodes_seen", "node_suspect", "nodes_disagree"} & set(kinds_of(store, name))
    assert node_histories(store.events(name), {}) == ()


def test_part_of_a_bisection_does_not_believe_whom_the_whole_does_not(lab: Lab) -> None:
    store = MemoryStore()
    bad = SimulatedNode("bad", distorts=shifted(1.0))
    whole, _ = drive(lab, store, executor=cluster(lab, with_bad(0, bad)))
    assert suspects(store, whole) == {"bad": "wrong"}
    question = lab.question(part_of=whole, num_earlier_attempts=1)
    executor = cluster(lab, with_bad(0, bad))
    name, ended = drive(lab, store, question=question, executor=executor)
    assert_isolated(lab, ended)
    assert suspects(store, name) == {}
    assert "bad" not in {probe.result.node for probe in store.results(name)}
