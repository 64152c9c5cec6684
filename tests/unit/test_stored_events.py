"""A stored event of another shape than was written is told with its number and kind; nothing that reads it fails otherwise."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_train.cli import idle, telling, triaging
from bisect_train.coordinator import climb, descent, node_events, observing, person, spending, warmth
from bisect_train.coordinator.event_log import (
    SHAPES,
    problem_of,
    read_events,
    read_probe,
    read_results,
    refuse_changes,
    refuse_rungs,
)
from bisect_train.core.errors import MachineError
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeResult
from bisect_train.nightly.reader import WatchReader
from bisect_train.nightly.state import WatchState
from bisect_train.store import contract, rows
from bisect_train.store.contract import StoredEvent
from bisect_train.store.memory import MemoryStore
from bisect_train.store.nightly_memory import MemoryNightlyLog
from bisect_train.telling.messenger import Receipt
from tests.support.edited_events import SAMPLES, SPEC, EditedBisection

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KINDS = sorted(SHAPES)
KNOWN = {key for rules in SHAPES.values() for key in rules}
CONSTANTS = (
    *(contract.MARKED, contract.UNDONE, contract.PROBE_FINISHED, contract.PROBE_REUSED, *contract.SPENDING),
    *(person.GIVEN_UP, person.RESULT_SHARED, person.REPLAYED, observing.LIMITS_CHANGED, climb.RUNG_TAKEN),
    *(spending.PROBE_LOST, spending.PROBE_CANCELLED, descent.DESCENDED, descent.NOT_OPENED, warmth.WARM_START),
    *(node_events.NODES_SEEN, node_events.NODE_SUSPECT, node_events.NODES_DISAGREE, node_events.LOST),
    *(idle.KEYS_TRIED, triaging.LOOKED_CLOSER, telling.TOLD),
)


def event_of(kind: str, data: Any, *, seq: int = 7) -> StoredEvent:
    return StoredEvent(seq, kind, 0.0, data)


def sample(kind: str) -> dict[str, Any]:
    return copy.deepcopy(dict(SAMPLES[kind]))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value inside a sample."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(item, (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def read_purely(event: StoredEvent) -> None:
    """Read one event wherever events are read without a question."""
    events = [event]
    person.taken_back(events)
    counted = person.events_that_count(events)
    person.marks_of(counted)
    person.undo_event(person.steps_to_undo(events))
    [person.is_foreign(item) for item in events]
    observing.count_rounds(events)
    observing.worked_s(events)
    node_events.node_histories([event_of(node_events.NODES_SEEN, {"nodes": ["a"], "notes": []}), *events], {})
    node_events.notes_of(events)
    node_events.disagreement_of(events)
    descent.children_of(events)
    descent.unopened_of(events)
    spending.Spending(1.0).load(events, ())
    triaging.second_look_of(events)
    triaging.num_second_looks(events)
    idle.num_key_probes(events)
    idle.warn_of_idle_keys(events)


def test_every_kind_whose_data_is_read_has_its_shape_and_a_sample() -> None:
    assert set(CONSTANTS) <= set(SHAPES) <= set(SAMPLES)


@pytest.mark.parametrize("kind", SAMPLES)
def test_event_as_it_is_written_is_read(kind: str) -> None:
    event = event_of(kind, sample(kind))
    assert problem_of(event) == ""
    read_purely(event)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_key_is_told_unless_the_kind_can_do_without(kind: str) -> None:
    num_told = 0
    for key in SHAPES[kind]:
        data = sample(kind)
        data.pop(key, None)
        event = event_of(kind, data)
        problem = problem_of(event)
        if problem:
            assert problem.startswith(f"`{key}` is not there; it must be ")
            num_told += 1
        else:
            read_purely(event)
    assert num_told or kind in ("finished", "budget_spent", "limits_changed")


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_value_of_any_kind_at_any_place_is_told_or_read(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    changed = sample(kind)
    put(changed, data.draw(st.sampled_from(list(places(changed)))), data.draw(ANY))
    event = event_of(kind, changed)
    problem = problem_of(event)
    assert problem == "" or "must be" in problem
    if not problem:
        read_purely(event)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(KINDS), ANY)
def test_data_of_another_kind_altogether_is_told_or_read(kind: str, value: Any) -> None:
    data = value if isinstance(value, dict) else {"x": value}
    event = event_of(kind, data)
    if not problem_of(event):
        read_purely(event)


@given(st.sampled_from(KINDS), st.text(min_size=1).filter(lambda name: name not in KNOWN), ANY)
def test_key_that_is_not_known_is_let_through(kind: str, name: str, value: Any) -> None:
    event = event_of(kind, {**sample(kind), name: value})
    assert problem_of(event) == ""
    read_purely(event)


@given(st.text().filter(lambda kind: kind not in SAMPLES), ANY)
def test_kind_that_is_not_known_is_let_through_whatever_it_holds(kind: str, value: Any) -> None:
    event = event_of(kind, {"spec": value, "key": value, "attempt": value, "seqs": value})
    assert problem_of(event) == ""
    read_purely(event)


@pytest.mark.parametrize(
    ("kind", "path", "value", "said"),
    [
        ("given_up", ("seed_idx",), "1", "`seed_idx` is '1'; it must be a whole number, 0 or more"),
        ("given_up", ("seed_idx",), True, "`seed_idx` is True"),
        ("given_up", ("attempt",), -1, "`attempt` is -1"),
        ("probe_finished", ("spec", "point"), "3*", "`spec.point` is '3*'; it must be a set of changes such as 12 or 20-3"),
        ("probe_finished", ("spec", "point"), "9" * 5000, "`spec.point` is "),
        ("probe_finished", ("spec",), [], "`spec` is a list; it must be an object"),
        ("probe_finished", ("key",), None, "`key` is None; it must be a text"),
        ("undone", ("requests",), [SPEC, {**SPEC, "repeat": None}], "`requests[1].repeat` is None"),
        ("undone", ("seqs",), [1.5], "`seqs[0]` is 1.5"),
        ("marked", ("verdict",), "worse", "it must be one of good, bad, other, untestable, inconclusive, clear"),
        ("node_suspect", ("why",), ["wrong"], "`why` is a list; it must be one of loses, wrong"),
        ("probe_lost", ("wall_s",), float("nan"), "`wall_s` is nan; it must be a number, 0 or more"),
        ("limits_changed", ("max_probes",), 10**400, "`max_probes` is 1000"),
        ("finished", ("answer", "cost"), 5, "`answer.cost` is 5; it must be an object"),
    ],
)
def test_what_is_wrong_is_said_with_the_rule(kind: str, path: tuple[Any, ...], value: Any, said: str) -> None:
    data = sample(kind)
    put(data, path, value)
    problem = problem_of(event_of(kind, data))
    assert said in problem and "it must be " in problem and len(problem) < 200


def store_with(*events: tuple[str, dict[str, Any]]) -> tuple[MemoryStore, str]:
    store = MemoryStore(clock=lambda: 11.0)
    name = store.create({}, title="")
    for kind, data in events:
        store.append(name, kind, data)
    return store, name


def test_error_names_the_event_its_bisection_the_rule_and_the_next_command() -> None:
    store, name = store_with(("started", {}), ("given_up", {"reason": "x"}), ("given_up", sample("given_up")))
    with pytest.raises(MachineError) as caught:
        read_events(store, name)
    assert caught.value.message == (
        f"event 2 (given_up) of bisection {name} cannot be read "
        "(`point` is not there; it must be a set of changes such as 12 or 20-3)"
    )
    assert f"`bisect-train log {name}`" in caught.value.hint and "newer version" in caught.value.hint
    assert caught.value.exit_status == 1
    assert [event.seq for event in read_events(store, name, kinds=("started",))] == [1], "the others do not matter"


def test_spec_of_a_result_is_looked_at_whatever_became_of_its_event() -> None:
    store, name = store_with()
    store.save_result(name, "aaaa", ProbeResult("aaaa", Fingerprint(Ending(EndingKind.STOPPED))), spec=dict(SPEC))
    assert [probe.key for probe in read_results(store, name)] == [read_probe(store, "aa").key] == ["aaaa"]
    store.save_result(name, "bbbb", ProbeResult("bbbb", Fingerprint(Ending(EndingKind.STOPPED))), spec={"point": 3})
    for read in (lambda: read_results(store, name), lambda: read_probe(store, "bb")):
        with pytest.raises(MachineError, match=f"probe bbbb of bisection {name} cannot be read .`spec.point` is 3; it must"):
            read()


@pytest.mark.parametrize(
    ("changed", "num_rungs", "said"),
    [
        ({"idx": 2}, 2, "`idx` is 2; the ladder has 2 rungs, from 0"),
        ({"from_idx": 2}, 2, "`from_idx` is 2; the ladder has 2 rungs"),
        ({}, 0, "`idx` is 0; the ladder has 0 rungs"),
        ({"fall_back": 7}, 2, "`fall_back` is 7"),
        ({"is_trial": True, "sd": None}, 2, "`sd` is None; it must be a number"),
    ],
)
def test_rung_that_the_ladder_has_not_is_told(changed: dict[str, Any], num_rungs: int, said: str) -> None:
    event = event_of("rung_taken", {**sample("rung_taken"), "from_idx": 0, **changed})
    assert problem_of(event) == ""
    with pytest.raises(MachineError, match=r"event 7 \(rung_taken\) of bisection 0000000a cannot be read") as caught:
        refuse_rungs([event], "0000000a", num_rungs)
    assert said in caught.value.message
    refuse_rungs([event_of("rung_taken", sample("rung_taken"))], "0000000a", 2)


@pytest.mark.parametrize(
    ("kind", "path", "value", "said"),
    [
        ("marked", ("point",), "6", "`point` is '6'"),
        ("unbuildable", ("point",), "2-5", "`point` is '2-5'"),
        ("probe_reused", ("spec", "proof_of"), 5, "`spec.proof_of` is 5"),
        ("undone", ("requests", 0, "point"), "0+7", "`requests[0].point` is '0+7'"),
        ("given_up", ("proof_of",), 99, "`proof_of` is 99"),
    ],
)
def test_event_about_a_change_that_is_not_there_is_told(kind: str, path: tuple[Any, ...], value: Any, said: str) -> None:
    refuse_changes([event_of(name, sample(name)) for name in SAMPLES], "0000000a", 5)
    data = sample(kind)
    put(data, path, value)
    assert problem_of(event_of(kind, data)) == ""
    with pytest.raises(MachineError, match=rf"event 7 \({kind}\) of bisection 0000000a cannot be read") as caught:
        refuse_changes([event_of(kind, data)], "0000000a", 5)
    assert f"{said}; the bisection has 5 changes" in caught.value.message


# ---- in a database ------------------------------------------------------------------------------------------------


def row(**changed: Any) -> Any:
    return SimpleNamespace(**{"seq": 4, "kind": "marked", "time_s": 5.0, "data": '{"a": 1}', **changed})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        *(({"data": data}, "its data is torn: it must be a JSON object") for data in ('{"a": ', "[1]", b"\xff\xfe", None, 5)),
        ({"time_s": "noon"}, "its time is 'noon'"),
        ({"time_s": float("inf")}, "its time is inf"),
        ({"time_s": None}, "its time is None"),
    ],
)
def test_torn_row_is_an_event_with_a_problem(changed: dict[str, Any], said: str) -> None:
    event = rows.event_of(row(**changed))
    assert (event.seq, event.kind, event.data) == (4, "marked", {}) and said in event.problem
    assert problem_of(event) == event.problem
    assert rows.event_of(row()) == StoredEvent(4, "marked", 5.0, {"a": 1})


@pytest.mark.parametrize(
    ("text", "answer"), [('{"answer": {"status": "x"}}', {"status": "x"}), ('{"answer": 5}', None), ("{", None)]
)
def test_bisection_whose_last_event_is_torn_is_listed_without_its_answer(text: str, answer: Any) -> None:
    head = {"id": "0000000a", "created_s": 1.0, "question": "{}", "title": "t"}
    stored = rows.bisection_of(SimpleNamespace(**head, last_kind="finished", last_data=text))
    assert (stored.id, stored.status, stored.answer) == ("0000000a", "finished", answer)


def test_what_was_stored_is_there_again_once_the_event_is_mended(tmp_path: Path) -> None:
    made = EditedBisection.build(tmp_path)
    whole = made.look_at_all()
    for seq in made.texts:
        made.put({seq: '{"point'})
        with pytest.raises(MachineError, match=rf"event {seq} \("):
            made.look_at_all()
        made.put({seq: made.texts[seq]})
    assert made.look_at_all() == whole


# ---- a nightly history --------------------------------------------------------------------------------------------

CHANNEL = {"to": "a", "name": "a webhook"}
TOLD = {"to": "a", "key": "k", "finding": "f", "receipt": {"how": "sent", "place": "", "reason": ""}}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("begun", {}),
        ("channel", {"to": "a"}),
        ("channel", {**CHANNEL, "to": ["a"]}),
        ("told", {**TOLD, "receipt": None}),
        ("told", {**TOLD, "finding": None}),
    ],
)
def test_event_of_a_night_of_another_shape_is_told_to_who_follows_the_history(kind: str, data: dict[str, Any]) -> None:
    log = MemoryNightlyLog()
    log.open("main", {})
    log.append("main", [("channel", CHANNEL), ("told", TOLD), ("a kind of tomorrow", {"to": 5})])
    assert WatchReader(log, "main").state() == WatchState()
    log.append("main", [(kind, data)])
    with pytest.raises(MachineError, match=rf"event 4 of a nightly history cannot be read .{kind}, "):
        WatchReader(log, "main").state()


def test_receipt_is_read_back_with_what_a_newer_version_adds() -> None:
    receipt = Receipt("sent", "12", "x")
    assert Receipt.of_json({**receipt.to_json(), "later": 1}) == receipt and Receipt.of_json({"how": "sent"}) == Receipt("sent")
    for data in ({}, {"how": 5}, {"how": "sent", "place": None}):
        with pytest.raises(MachineError, match="a stored receipt cannot be read"):
            Receipt.of_json(data)
