"""Lines of a record file as its readers count on them: what has another type than the recorder writes is left out.

The file lies where the user's program can write, several processes may have written into each other's lines, and a value that
JSON does not know was recorded as its text. A field that is no number where one belongs is as if it were not there; a line
without its type or step is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

MAX_WHOLE = 2**62
"""Of steps, ranks and other whole numbers."""


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_WHOLE


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_WHOLE)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _are_rates(value: Any) -> bool:
    return isinstance(value, list) and all(item is None or _is_number(item) for item in value)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_names(value: Any) -> bool:
    return _is_text(value) or _are_texts(value)


def _are_shares(value: Any) -> bool:
    return _are_rates(value) and len(value) == 2 and value[1] is not None


def _maps_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


Fields = Mapping[str, Callable[[Any], bool]]

_START: Fields = {"rank": _is_whole, "world_size": _is_whole, "pid": _is_whole, "t": _is_number}
_STEP: Fields = {
    **dict.fromkeys(("t", "loss", "grad_norm", "clip_norm", "param_norm", "step_s", "step_cpu_s", "step_cuda_s"), _is_number),
    **dict.fromkeys(("rss_mib", "cuda_mib", "self_s", "data_s", "moved", "grad_sq", "clip_share"), _is_number),
    **dict.fromkeys(("param_hash", "rng_hash", "batch_hash", "plain_hash", "samples", "collectives"), _is_text),
    **dict.fromkeys(("missing_grads", "num_params"), _is_whole),
    **dict.fromkeys(("param_dtypes", "grad_dtypes", "autocast"), _are_names),
    **dict.fromkeys(("grad_shares", "param_shares"), _are_shares),
    "micro": _are_numbers,
    "lr": _are_rates,
}
_DATA: Mapping[str, Fields] = {
    "process_group": {"rank": _is_whole, "world_size": _is_whole},
    "process_group_begin": {"rank": _is_whole, "world_size": _is_whole},
    "imports": {"outside": _maps_texts},
    "outside_files": {"written": _are_texts},
    "files_read": dict.fromkeys(("files", "folders", "searched", "natives", "doubts"), _are_texts),
}
"""Of events: fields of their data."""


def clean_line(line: Any) -> dict[str, Any] | None:
    """Return a line with the fields that are what they should be, None for what is no line of the recorder."""
    kind = line.get("type") if isinstance(line, dict) else None
    if kind == "start":
        return _kept(line, _START)
    if kind == "step" and _is_whole(line.get("step")):
        return _kept(line, _STEP)
    if kind == "event" and _is_text(line.get("name")):
        data = line.get("data")
        data = _kept(data, _DATA.get(line["name"], {})) if isinstance(data, dict) else {}
        return {**_kept(line, {"t": _is_number, "step": _is_whole}), "data": data}
    return None


def _kept(values: dict[str, Any], fields: Fields) -> dict[str, Any]:
    """Return the values without those of another type; what nothing is known of stays."""
    return {key: value for key, value in values.items() if (is_right := fields.get(key)) is None or is_right(value)}
