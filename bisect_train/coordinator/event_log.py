"""A bisection's events as they are read back: what the data of each kind must hold is said here, and looked at here only.

Whoever takes an event's data apart gets the events from `read_events`. `Store.events` gives them as they lie there, for those
who want kinds, numbers and times. What a kind has beside the keys below, and kinds that are not named, are let through: a newer
version may have written them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, NoReturn

from bisect_train.coordinator.node_events import Why
from bisect_train.core.changes import point_of_text
from bisect_train.core.errors import damaged
from bisect_train.core.verdict import VerdictKind
from bisect_train.store.contract import Store, StoredEvent, StoredProbe
from bisect_train.verdict.triage import SecondRun

Rule = Callable[[Any, str], str]
"""A value, `ABSENT` where its key is not there, and its name -> what is wrong with it, "" for nothing."""

ABSENT = object()
_MOST = 2**53
"""What counts or numbers something stays below this: a larger one is none of ours, and overflows where it is added up."""
_MAX_SHOWN = 40


# ---- what a value may be ------------------------------------------------------------------------------------------


def _must_be(words: str, holds: Callable[[Any], bool]) -> Rule:
    def look(value: Any, name: str) -> str:
        if value is ABSENT:
            return f"`{name}` is not there; it must be {words}"
        return "" if holds(value) else f"`{name}` is {_shown(value)}; it must be {words}"

    return look


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value)[:_MAX_SHOWN]


def _maybe(rule: Rule) -> Rule:
    """Return a rule for what may be left out or null."""
    return lambda value, name: "" if value is ABSENT or value is None else rule(value, name)


def _unless_absent(rule: Rule) -> Rule:
    """Return a rule for what may be left out, and is not null."""
    return lambda value, name: "" if value is ABSENT else rule(value, name)


def _list_of(rule: Rule) -> Rule:
    is_list = _must_be("a list", lambda value: isinstance(value, list))

    def look(value: Any, name: str) -> str:
        return is_list(value, name) or _first(rule(item, f"{name}[{idx}]") for idx, item in enumerate(value))

    return look


def _object(rules: Mapping[str, Rule]) -> Rule:
    is_object = _must_be("an object", lambda value: isinstance(value, dict))

    def look(value: Any, name: str) -> str:
        return is_object(value, name) or _first(
            rule(value.get(key, ABSENT), f"{name}.{key}" if name else key) for key, rule in rules.items()
        )

    return look


def _first(problems: Iterable[str]) -> str:
    return next(filter(None, problems), "")


def _one_of(*kinds: Enum | str) -> Rule:
    names = [str(kind.value) if isinstance(kind, Enum) else kind for kind in kinds]
    return _must_be(f"one of {', '.join(names)}", lambda value: isinstance(value, str) and value in names)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < _MOST


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and _is_number(value)


def _is_point(value: Any) -> bool:
    try:
        point = point_of_text(value) if isinstance(value, str) else None
    except ValueError:
        return False
    return point is not None and max(point.prefix, *point.plus, *point.minus, 0) < _MOST


_TEXT = _must_be("a text", lambda value: isinstance(value, str))
_WHOLE = _must_be("a whole number", _is_whole)
_COUNT = _must_be("a whole number, 0 or more", lambda value: _is_whole(value) and value >= 0)
_NUMBER = _must_be("a number", _is_number)
_AMOUNT = _must_be("a number, 0 or more", lambda value: _is_number(value) and value >= 0)
_FLAG = _must_be("true or false", lambda value: isinstance(value, bool))
_POINT = _must_be("a set of changes such as 12 or 20-3", _is_point)
_VERSION = _must_be("the number of a version, 1 or more", lambda value: _is_point(value) and value.isdigit() and int(value) > 0)


# ---- what each kind holds -----------------------------------------------------------------------------------------

_REQUEST: Mapping[str, Rule] = {
    "point": _POINT,
    "seed_idx": _COUNT,
    "repeat": _COUNT,
    "attempt": _COUNT,
    "proof_of": _must_be("the number of a change, or -1", lambda value: _is_whole(value) and value >= -1),
    "part": _unless_absent(_WHOLE),
}
_SPEC: Mapping[str, Rule] = {
    **_REQUEST,
    **dict.fromkeys(("variant", "commit", "config", "rung", "begun_as", "taken_from"), _maybe(_TEXT)),
}
_RESULT: Mapping[str, Rule] = {"key": _TEXT, "spec": _object(_SPEC)}
_TAKEN_BACK: Mapping[str, Rule] = {"keys": _list_of(_TEXT), "requests": _list_of(_object(_REQUEST))}
_ENDED: Mapping[str, Rule] = {"key": _TEXT, "wall_s": _maybe(_AMOUNT), "node": _maybe(_TEXT)}
_COSTS = ("probes", "cached", "wall_s", "gpu_s", "rounds", "pruned", "early", "saved_steps")
_CULPRIT: Mapping[str, Rule] = {"changes": _list_of(_object({"kind": _TEXT, "id": _TEXT}))}
_ANSWER: Mapping[str, Rule] = {
    "status": _maybe(_TEXT),
    "summary": _maybe(_TEXT),
    "culprits": _maybe(_list_of(_object(_CULPRIT))),
    "cost": _maybe(_object(dict.fromkeys(_COSTS, _maybe(_AMOUNT)))),
}

SHAPES: Mapping[str, Mapping[str, Rule]] = {
    "finished": {"answer": _maybe(_object(_ANSWER)), "exit_status": _maybe(_WHOLE)},
    "budget_spent": {"reason": _maybe(_TEXT), "is_unseen": _maybe(_FLAG)},
    "probe_started": {"key": _TEXT, "point": _maybe(_TEXT)},
    "probe_finished": _RESULT,
    "probe_reused": _RESULT,
    "result_shared": _RESULT,
    "probe_lost": _ENDED,
    "probe_cancelled": _ENDED,
    "given_up": {**_SPEC, "reason": _TEXT},
    "unbuildable": {"point": _POINT, "reason": _TEXT},
    "marked": {"point": _VERSION, "commit": _TEXT, "verdict": _one_of(*VerdictKind, "clear")},
    "undone": {"seqs": _list_of(_WHOLE), **_TAKEN_BACK},
    "replayed": {"of": _TEXT, **_TAKEN_BACK},
    "node_suspect": {"node": _TEXT, "why": _one_of(*Why), "reason": _TEXT, "seqs": _list_of(_WHOLE), **_TAKEN_BACK},
    "nodes_seen": {"nodes": _list_of(_TEXT), "notes": _list_of(_TEXT)},
    "nodes_disagree": {"reason": _TEXT},
    "limits_changed": {"max_probes": _maybe(_COUNT), "gpu_hours": _maybe(_AMOUNT), "wall_s": _maybe(_AMOUNT)},
    "rung_taken": {
        "idx": _COUNT,
        "from_idx": _COUNT,
        "reason": _TEXT,
        "num_attempts": _COUNT,
        "fall_back": _maybe(_COUNT),
        "is_trial": _maybe(_FLAG),
        "is_settled": _maybe(_FLAG),
        "sd": _maybe(_NUMBER),
    },
    "descended": {"opened": _TEXT, "child": _TEXT},
    "not_opened": {"opened": _TEXT, "reason": _TEXT},
    "warm_start": {"is_proven": _FLAG},
    "keys_tried": {"path": _TEXT, "commit": _TEXT, "idle": _list_of(_TEXT), "num_probes": _COUNT},
    "looked_closer": {
        "kind": _one_of(*SecondRun),
        "said": _list_of(_TEXT),
        "key": _TEXT,
        "reason": _TEXT,
        "num_probes": _COUNT,
    },
    "told": {
        "place": _TEXT,
        "content": _TEXT,
        "finding": _TEXT,
        "revision": _WHOLE,
        "receipt": _object({"how": _TEXT, "place": _unless_absent(_TEXT), "reason": _unless_absent(_TEXT)}),
    },
}
"""What the data of each kind must hold to be read."""


# ---- reading ------------------------------------------------------------------------------------------------------


def read_events(store: Store, bisection_id: str, *, kinds: Collection[str] | None = None) -> tuple[StoredEvent, ...]:
    """Return the events of a bisection, the data of each of the shape in which its kind is written.

    Args:
        store: that has them.
        bisection_id: whose.
        kinds: only these, whatever the others hold.
    Raises:
        MachineError: the data of one is of another shape; says of which, what is wrong, and the rule.
    """
    events = tuple(event for event in store.events(bisection_id) if kinds is None or event.kind in kinds)
    for event in events:
        if problem := problem_of(event):
            refuse(event, problem, bisection_id=bisection_id)
    return events


def readable_events(store: Store, bisection_id: str) -> tuple[StoredEvent, ...]:
    """Return the events of a bisection without those that cannot be read: for a look that decides nothing."""
    return tuple(event for event in store.events(bisection_id) if not problem_of(event))


def problem_of(event: StoredEvent) -> str:
    """Return what is wrong with an event's data and the rule, "" for nothing."""
    return event.problem or _object(SHAPES.get(event.kind, {}))(event.data, "")


def refuse(event: StoredEvent, problem: str, *, bisection_id: str) -> NoReturn:
    """Raise MachineError for an event that cannot be read."""
    what = f"event {event.seq} ({event.kind}) of bisection {bisection_id}"
    raise damaged(what, problem, then=_what_next(bisection_id))


def refuse_rungs(events: Iterable[StoredEvent], bisection_id: str, num_rungs: int) -> None:
    """Raise MachineError where an event, one of `read_events`, takes or leaves a rung that the ladder does not have."""
    for event in events:
        if event.kind == "rung_taken":
            rungs = [(name, event.data.get(name)) for name in ("idx", "from_idx", "fall_back")]
            for name, idx in rungs:
                if idx is not None and idx >= num_rungs:
                    refuse(event, f"`{name}` is {idx}; the ladder has {num_rungs} rungs, from 0", bisection_id=bisection_id)
            if event.data.get("is_trial") and (problem := _NUMBER(event.data.get("sd", ABSENT), "sd")):
                refuse(event, problem, bisection_id=bisection_id)


def refuse_changes(events: Iterable[StoredEvent], bisection_id: str, num_changes: int) -> None:
    """Raise MachineError where an event, one of `read_events`, is about changes that its bisection does not have."""
    for event in events:
        for name, request in _requests_of(event):
            point, proof_of = point_of_text(request["point"]), request.get("proof_of", -1)
            most = max(point.prefix, *(idx + 1 for idx in (*point.plus, *point.minus)), 0)
            wrong = "point" if most > num_changes else "proof_of" if proof_of >= num_changes else ""
            if wrong:
                problem = f"`{name}{wrong}` is {_shown(request[wrong])}; the bisection has {num_changes} changes"
                refuse(event, problem, bisection_id=bisection_id)


def _requests_of(event: StoredEvent) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what in an event's data is about a set of changes, each with the name that goes before its keys."""
    rules = SHAPES.get(event.kind, {})
    if rules.get("point") in (_POINT, _VERSION):
        yield "", event.data
    if "spec" in rules:
        yield "spec.", event.data["spec"]
    if "requests" in rules:
        yield from ((f"requests[{idx}].", item) for idx, item in enumerate(event.data["requests"]))


def read_results(store: Store, bisection_id: str) -> tuple[StoredProbe, ...]:
    """Return the results that count in a bisection, each with a spec that says which run it was. Raises MachineError."""
    return tuple(map(_with_spec, store.results(bisection_id)))


def read_probe(store: Store, prefix: str) -> StoredProbe:
    """Return a finished probe by the beginning of its key, with a spec that says which run it was.

    Raises:
        InputError: none or several keys begin like this.
        MachineError: what is stored of it is of another shape.
    """
    return _with_spec(store.find_probe(prefix))


def _with_spec(probe: StoredProbe) -> StoredProbe:
    if problem := _object(_SPEC)(probe.spec, "spec"):
        what = f"probe {probe.key} of bisection {probe.bisection_id}"
        raise damaged(what, problem, then=_what_next(probe.bisection_id))
    return probe


def _what_next(bisection_id: str) -> str:
    again = "`bisect-train run` with the same question takes over what it has measured"
    return f"`bisect-train log {bisection_id}` shows its other events; {again}"
