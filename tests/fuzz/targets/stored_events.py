"""A bisection's event log, edited by hand, torn or of a broken version: everything that reads it back says so, or reads it."""

from __future__ import annotations

import atexit
import functools
import json
import random
from typing import Any

from bisect_train.core.errors import InputError, MachineError
from bisect_train.store.home import open_store
from bisect_train.store.sql import SqlStore
from tests.fuzz.engine import Target
from tests.fuzz.places import folder
from tests.fuzz.text_changes import change_text
from tests.fuzz.value_changes import change_value, json_text
from tests.support.edited_events import SAMPLES, EditedBisection

NUMBERS = (-1, 0, 1, 2, 3, 4, 5, 7, 40, 10**6, 2**31, 2**52, 0.5)
TEXTS = (
    "",
    "x",
    "good",
    "bad",
    "untestable",
    "clear",
    "wrong",
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "0+2",
    "3-1",
    "0+1+3",
    "9",
    "a",
    "k7",
)
"""Points of a bisection of four changes among them, and such as it does not have."""


@functools.cache
def _place() -> tuple[EditedBisection, SqlStore]:
    made = EditedBisection.build(folder("events"))
    store = open_store(made.home)
    atexit.register(store.close)
    return made, store


@functools.cache
def _texts() -> tuple[tuple[int, str], ...]:
    return tuple(_place()[0].texts.items())


def _make(rng: random.Random) -> list[tuple[int, str]]:
    """Return other data for one to three events."""
    return [(seq, _changed(rng, text)) for seq, text in rng.sample(_texts(), rng.choice((1, 1, 2, 3)))]


def _changed(rng: random.Random, text: str) -> str:
    if rng.random() < 0.1:
        return change_text(rng, text, [text]).encode("utf-8", "replace").decode()
    value = json.loads(text)
    value = _altered(rng, value) if rng.random() < 0.5 else change_value(rng, value, list(SAMPLES.values()))
    return json_text(rng, value).encode("utf-8", "replace").decode()


def _altered(rng: random.Random, value: Any) -> Any:
    """Return data of the right shape that says something else here and there."""
    if isinstance(value, dict):
        return {key: _altered(rng, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_altered(rng, item) for item in value] * rng.choice((1, 1, 1, 0, 2))
    if rng.random() < 0.8 or value is None:
        return value
    if isinstance(value, bool):
        return not value
    return rng.choice(NUMBERS if isinstance(value, (int, float)) else TEXTS)


def _read(case: list[tuple[int, str]]) -> None:
    made, store = _place()
    known = dict(made.texts)
    made.put(dict(case))
    try:
        made.look_around(store)
        made.read(store)
    finally:
        made.put({seq: known[seq] for seq, _ in case})


TARGETS = (Target("stored-events", _make, _read, (MachineError, InputError), 0.3),)
