"""On which nodes of a cluster probes run: names, classes, room, and the choice of a node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_train.core.errors import InputError
from bisect_train_workers.cluster import (
    ClusterNode,
    NodeClass,
    choose_class,
    choose_nodes,
    label_of,
    name_gangs,
    name_nodes,
    of_class,
    read_nodes,
    say_left_out,
)
from bisect_train_workers.cluster_scaling import is_scaled
from bisect_train_workers.placement import count_gangs, count_slots, left_of, require_room, task_options, wanted_of
from tests.support.probes import make_settings

OLD, NEW, PATCHED = NodeClass("old CPU", "python a"), NodeClass("new CPU", "python a"), NodeClass("old CPU", "python b")
ONE_CPU = {"CPU": 1.0}


def node(name: str, cpus: float = 1.0, **has: float) -> ClusterNode:
    return ClusterNode(f"id-{name}", name, {"CPU": cpus, **has})


def row(node_id: str, *, name: str = "", host: str = "", address: str = "10.0.0.1", alive: bool = True) -> dict[str, Any]:
    named = {"NodeName": name, "NodeManagerHostname": host, "NodeManagerAddress": address}
    return {"NodeID": node_id, "Alive": alive, "Resources": {"CPU": 2.0}, **named}


# ---- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ({"name": "left", "host": "h"}, "left"),
        ({"name": "10.0.0.1", "host": "h"}, "h"),  # Ray's own default says less than the host
        ({"host": "h"}, "h"),
        ({}, "10.0.0.1"),
        ({"address": ""}, "abcdef"),
    ],
)
def test_node_is_called_by_its_name_else_its_host_else_its_address(given: dict[str, str], label: str) -> None:
    assert label_of(row("abcdef123", **given)) == label


def test_nodes_of_one_host_are_told_by_their_ids() -> None:
    assert name_nodes({"aaaaaa11": "h", "bbbbbb22": "h", "cccccc33": "g"}, {}) == {
        "aaaaaa11": "h-aaaaaa",
        "bbbbbb22": "h-bbbbbb",
        "cccccc33": "g",
    }


def test_node_keeps_its_name_when_another_of_that_host_joins() -> None:
    assert name_nodes({"aaaaaa11": "h", "bbbbbb22": "h"}, {"aaaaaa11": "h"}) == {"aaaaaa11": "h", "bbbbbb22": "h-bbbbbb"}


def test_machine_that_joins_again_is_called_as_before() -> None:
    assert name_nodes({"bbbbbb22": "h"}, {"aaaaaa11": "h"}) == {"bbbbbb22": "h"}


@given(
    st.dictionaries(st.text("ab", min_size=7, max_size=9), st.sampled_from(["h", "h-aaaaaa", "g"]), max_size=8),
    st.integers(0, 8),
)
def test_names_of_living_nodes_are_unique_and_stay(labels: dict[str, str], num_earlier: int) -> None:
    earlier = dict(sorted(labels.items())[:num_earlier])
    first = name_nodes(earlier, {})
    both = name_nodes(labels, first)
    assert len(set(both.values())) == len(labels)
    assert first.items() <= both.items()


def test_dead_nodes_are_left_out_of_the_table() -> None:
    nodes = read_nodes([row("aa", host="x", alive=False), row("bb", host="y"), row("cc", host="w")], {})
    assert [item.name for item in nodes] == ["w", "y"]


# ---- classes ------------------------------------------------------------------------------------------------------


def classes_of(**classes: NodeClass) -> dict[str, NodeClass]:
    return {f"id-{name}": found for name, found in classes.items()}


def test_class_with_most_slots_is_chosen_not_the_one_with_most_nodes() -> None:
    nodes = [node("a"), node("b"), node("c", 8.0)]
    assert choose_class(nodes, classes_of(a=OLD, b=OLD, c=NEW), ONE_CPU) == NEW


def test_tie_goes_to_the_class_of_the_first_node_by_name() -> None:
    nodes = [node("b"), node("a")]
    assert choose_class(nodes, classes_of(a=NEW, b=OLD), ONE_CPU) == NEW
    assert choose_class(nodes, classes_of(a=OLD, b=NEW), ONE_CPU) == OLD


def test_nodes_without_a_class_or_room_do_not_count() -> None:
    nodes = [node("a", 64.0), node("b", 1.0), node("c", 0.5)]
    assert choose_class(nodes, classes_of(b=OLD, c=NEW), ONE_CPU) == OLD
    assert choose_class(nodes, classes_of(c=NEW), ONE_CPU) is None
    assert choose_class([], {}, ONE_CPU) is None
    assert of_class(nodes, classes_of(b=OLD, c=NEW), NEW) == [nodes[2]] and of_class(nodes, {}, None) == []


def test_left_out_nodes_are_named_with_the_reason() -> None:
    nodes = [node("a"), node("b"), node("c"), node("d"), node("e")]
    classes = classes_of(a=OLD, b=NEW, c=NEW, d=PATCHED, e=OLD)
    assert say_left_out(nodes, classes, OLD, {"id-e": "its disk is full"}) == (
        "2 nodes with other hardware (new CPU) are not used (b, c): numbers compare only within one hardware class",
        "1 node with another interpreter or other packages (python b) is not used (d): numbers compare only within the same",
        "1 node is not used (e): its disk is full",
    )
    assert say_left_out(nodes, classes_of(a=OLD), OLD, {}) == ()


def test_long_list_of_nodes_is_cut() -> None:
    nodes = [node(f"n{idx}") for idx in range(8)]
    (note,) = say_left_out(nodes, {item.id: NEW for item in nodes}, OLD, {})
    assert note.startswith("8 nodes") and "(n0, n1, n2, n3, n4 and 3 more)" in note


# ---- room ---------------------------------------------------------------------------------------------------------


def test_slots_are_what_the_scarcest_resource_allows() -> None:
    wanted = wanted_of(make_settings(cpus=2.0, memory=3_000, custom=(("disk", 0.5),), accelerator="H100"))
    assert wanted == {"CPU": 2.0, "memory": 3000.0, "disk": 0.5, "accelerator_type:H100": 0.001}
    roomy = {"CPU": 64.0, "memory": 10_000.0, "disk": 8.0, "accelerator_type:H100": 1.0}
    assert count_slots(wanted, roomy) == 3
    assert count_slots(wanted, roomy | {"accelerator_type:H100": 0.0}) == 0
    assert count_slots({"CPU": 0.1}, {"CPU": 0.3}) == 3  # not 2, by rounding
    assert count_slots({}, {"CPU": 4.0}) == 4


def test_options_of_a_task_hold_what_ray_takes() -> None:
    assert task_options(make_settings()) == {"num_cpus": 1.0, "num_gpus": 0.0, "max_retries": 0}
    asked = make_settings(cpus=2.0, memory=8_000, custom=(("disk", 1.0),), accelerator="L4")
    assert task_options(asked) == {
        "num_cpus": 2.0,
        "num_gpus": 0.0,
        "max_retries": 0,
        "memory": 8000,
        "resources": {"disk": 1.0},
        "accelerator_type": "L4",
    }


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cpus": 9.0}, "no node has the 9 CPUs and 0 GPUs of one probe; the largest of 2 has 8 CPUs and 0 GPUs"),
        ({"memory": 64 * 10**9}, "64.0 GB of memory of one probe (`resources: memory`); the most of any is 16.0 GB of memory"),
        (
            {"custom": (("tpu_host", 2.0),)},
            "the 2 tpu_host of one probe (`resources: custom: {tpu_host: ...}`); the most of any is 0",
        ),
        ({"accelerator": "H100"}, "no node has the accelerator H100 (`resources: accelerator`); there is L4"),
        (
            {"cpus": 8.0, "memory": 16 * 10**9},
            "no single node has all that one probe takes: 8 CPUs, 16.0 GB of memory",
        ),
    ],
)
def test_what_no_node_can_hold_is_refused_with_what_there_is(asked: dict[str, Any], said: str) -> None:
    nodes = [{"CPU": 8.0, "memory": 4e9}, {"CPU": 4.0, "memory": 16e9, "accelerator_type:L4": 1.0}]
    with pytest.raises(InputError) as caught:
        require_room(make_settings(**asked), nodes)
    assert said in caught.value.message and caught.value.hint
    require_room(make_settings(cpus=4.0, memory=16 * 10**9, accelerator="L4"), nodes)


@pytest.mark.parametrize(
    ("kinds", "is_one"),
    [
        ([], False),
        ([f"node_{'0a' * 28}", ""], False),
        (["ray.head.default", f"node_{'0a' * 28}"], True),
        (["node_small"], True),
    ],
)
def test_cluster_with_kinds_of_its_own_starts_nodes_by_itself(kinds: list[str], is_one: bool) -> None:
    assert is_scaled(kinds) == is_one


# ---- the node of a probe ------------------------------------------------------------------------------------------


def name_of(found: tuple[ClusterNode, ...]) -> str:
    return " ".join(item.name for item in found)


def test_probe_goes_to_the_emptiest_node_then_to_the_one_that_ran_fewest_then_by_name() -> None:
    nodes = [node("a", 4.0), node("b", 2.0), node("c", 2.0)]
    assert name_of(choose_nodes(nodes, ONE_CPU, {"id-a": [ONE_CPU] * 2})) == "b"
    assert name_of(choose_nodes(nodes, ONE_CPU, {"id-a": [ONE_CPU] * 2}, num_run={"id-b": 3})) == "c"
    assert name_of(choose_nodes(nodes, ONE_CPU, {"id-a": [ONE_CPU], "id-b": [ONE_CPU], "id-c": [ONE_CPU]})) == "a"
    assert choose_nodes(nodes, ONE_CPU, {"id-a": [ONE_CPU] * 4, "id-b": [ONE_CPU] * 2, "id-c": [{"CPU": 1.5}]}) == ()
    assert choose_nodes([], ONE_CPU, {}) == ()


def test_avoided_node_is_taken_only_where_there_is_no_other() -> None:
    nodes = [node("a"), node("b")]
    assert name_of(choose_nodes(nodes, ONE_CPU, {}, avoid=["a"])) == "b"
    assert choose_nodes(nodes, ONE_CPU, {"id-b": [ONE_CPU]}, avoid=["a"]) == ()  # b is full: it waits for b
    assert name_of(choose_nodes(nodes, ONE_CPU, {}, avoid=["a", "b"])) == "a"
    assert name_of(choose_nodes(nodes[:1], ONE_CPU, {}, avoid=["a"])) == "a"
    small = [node("a", 4.0), node("b", 1.0)]
    assert name_of(choose_nodes(small, {"CPU": 2.0}, {}, avoid=["a"])) == "a"  # b can never hold it


def test_node_that_others_use_comes_last() -> None:
    nodes = [node("a", 2.0), node("b", 2.0)]
    assert name_of(choose_nodes(nodes, ONE_CPU, {"id-b": [ONE_CPU]}, busy=["id-a"])) == "b"
    assert name_of(choose_nodes(nodes, ONE_CPU, {"id-b": [ONE_CPU] * 2}, busy=["id-a"])) == "a"


def test_probe_of_several_nodes_takes_different_ones_or_waits() -> None:
    nodes = [node("a", 4.0), node("b", 2.0), node("c", 2.0)]
    assert name_of(choose_nodes(nodes, ONE_CPU, {}, at_once=2)) == "a b"
    assert name_of(choose_nodes(nodes, ONE_CPU, {"id-a": [ONE_CPU] * 2}, at_once=3)) == "b c a"
    assert choose_nodes(nodes, ONE_CPU, {"id-b": [ONE_CPU] * 2}, at_once=3) == ()
    assert choose_nodes(nodes, ONE_CPU, {}, at_once=4) == ()
    assert name_of(choose_nodes(nodes, ONE_CPU, {}, at_once=2, avoid=["a"])) == "b c"
    assert name_of(choose_nodes(nodes, ONE_CPU, {}, at_once=2, avoid=["a", "b"])) == "c a"  # one new node at least
    assert choose_nodes(nodes, ONE_CPU, {"id-c": [ONE_CPU] * 2}, at_once=2, avoid=["a"]) == ()  # it waits for c


def test_shaky_node_comes_last_and_ends_no_probe_of_several_nodes() -> None:
    nodes = [node("a"), node("b"), node("c")]
    assert name_of(choose_nodes(nodes, ONE_CPU, {}, shaky=["id-a"])) == "b"
    assert name_of(choose_nodes(nodes, ONE_CPU, {"id-b": [ONE_CPU], "id-c": [ONE_CPU]}, shaky=["id-a"])) == "a"
    assert name_of(choose_nodes(nodes, ONE_CPU, {}, at_once=2, shaky=["id-a"], avoid=["b"])) == "c b"
    assert choose_nodes(nodes, ONE_CPU, {"id-c": [ONE_CPU]}, at_once=2, shaky=["id-a"]) == ()  # it waits for c
    assert name_of(choose_nodes(nodes, ONE_CPU, {}, at_once=3, shaky=["id-a"])) == "b c a"


@given(st.lists(st.integers(0, 4), max_size=5), st.integers(1, 4))
def test_gangs_that_fit_are_those_that_can_be_placed_one_after_the_other(slots: list[int], at_once: int) -> None:
    nodes = [node(str(idx), float(num)) for idx, num in enumerate(slots) if num]
    taken: dict[str, list[dict[str, float]]] = {}
    num = 0
    while found := choose_by_room(nodes, taken, at_once):
        num += 1
        for item in found:
            taken.setdefault(item.id, []).append(dict(ONE_CPU))
    assert count_gangs(slots, at_once) == num


def choose_by_room(nodes: list[ClusterNode], taken: dict[str, list[dict[str, float]]], at_once: int) -> list[ClusterNode]:
    """Return the nodes with most room left: taking these first places as many gangs as can be."""
    room = {item.id: item.has["CPU"] - len(taken.get(item.id, ())) for item in nodes}
    best = sorted((item for item in nodes if room[item.id] >= 1), key=lambda item: -room[item.id])[:at_once]
    return best if len(best) == at_once else []


def test_class_with_room_for_most_gangs_is_chosen() -> None:
    nodes = [node("a", 8.0), node("b", 1.0), node("c", 1.0), node("d", 1.0)]
    classes = {"id-a": NodeClass("big", "py"), **dict.fromkeys(("id-b", "id-c", "id-d"), NodeClass("small", "py"))}
    assert choose_class(nodes, classes, ONE_CPU) == NodeClass("big", "py")
    assert choose_class(nodes, classes, ONE_CPU, at_once=2) == NodeClass("small", "py")
    assert choose_class(nodes, classes, ONE_CPU, at_once=4) is None
    assert name_gangs(["a", "b", "c"], 1) == ("a", "b", "c")
    assert name_gangs(["a", "b", "c"], 2) == ("a + b",)


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.sampled_from([0.5, 1.0, 2.0, 4.0]), st.sets(st.integers(0, 3), max_size=4), st.integers(1, 3)), max_size=12
    ),
)
def test_placed_probes_never_take_more_than_a_node_has(cpus: list[int], probes: list[tuple[float, set[int], int]]) -> None:
    nodes = [node(str(idx), float(num)) for idx, num in enumerate(cpus)]
    taken: dict[str, list[dict[str, float]]] = {}
    for amount, avoided, at_once in probes:
        wanted, avoid = {"CPU": amount}, [str(idx) for idx in avoided]
        found = choose_nodes(nodes, wanted, taken, avoid=avoid, at_once=at_once)
        assert len({item.id for item in found}) in (0, at_once)
        others = [item for item in nodes if item.name not in avoid and item.has["CPU"] >= amount]
        assert len(others) < at_once or not any(item.name in avoid for item in found)
        for item in found:
            taken.setdefault(item.id, []).append(wanted)
    assert all(left_of(item.has, taken.get(item.id, ()))["CPU"] >= 0 for item in nodes)
