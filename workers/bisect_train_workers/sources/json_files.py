"""Metrics in JSON: a line per step, Hugging Face's `trainer_state.json`, or one object with results. Pure functions on text."""

from __future__ import annotations

from typing import Any

from bisect_train_workers.sources.points import Points, keys_of, load_json, look_up, step_beside, step_of, text_of_number
from bisect_train_workers.sources.text_lines import lines_of


def read_json_lines(data: bytes, key: str, step_key: str = "") -> Points:
    """Return the values of a dotted key, line by line; lines that are no whole object are passed over."""
    points = Points()
    for line in lines_of(data, is_whole=True):  # an object that is cut off is none
        if not line.lstrip().startswith("{"):
            continue
        try:
            row = load_json(line)
        except ValueError:
            continue
        _take_row(row, key, step_key, points)
    return points


def read_json(text: str, key: str, step_key: str = "") -> Points:
    """Return the values of a dotted key: of each entry of `log_history` where there is one, else the number or list there.

    A file that is cut off has none.
    """
    points = Points()
    try:
        data = load_json(text)
    except ValueError:
        points.note = "it is no whole JSON text"
        return points
    rows = data.get("log_history") if isinstance(data, dict) else data
    if isinstance(rows, list):
        for row in rows:
            _take_row(row, key, step_key, points)
        return points
    found = look_up(data, key)
    for item in found if isinstance(found, list) else [found]:
        if (shown := text_of_number(item)) is not None:
            points.add_text(shown, step_beside(data, step_key) if not isinstance(found, list) else None)
    points.known = dict.fromkeys(keys_of(data))
    return points


def global_step_of(text: str) -> int:
    """Return how far a `trainer_state.json` is, -1 if it does not say."""
    try:
        data: Any = load_json(text)
    except ValueError:
        return -1
    step = step_of(look_up(data, "global_step"))
    return -1 if step is None else step


def _take_row(row: Any, key: str, step_key: str, points: Points) -> None:
    points.known |= dict.fromkeys(keys_of(row))
    shown = text_of_number(look_up(row, key))
    if shown is not None:
        points.add_text(shown, step_beside(row, step_key))
