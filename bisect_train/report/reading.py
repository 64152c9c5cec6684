"""Reads report.json, of this version and of older ones; a newer one is refused with a message that says so.

Within a schema keys are only added. What an older report of the same schema lacks is filled in here, in one place.
"""

from __future__ import annotations

import json
from typing import Any

from bisect_train.core.errors import InputError
from bisect_train.report.wire import SCHEMA

_LATER_KEYS: dict[str, Any] = {"kind_of_change": None, "num_changes": {}, "triage": {}, "warnings": [], "reproduce": []}
"""What a report can do without, and has then."""
_KINDS = {"culprits": list, "candidates": list, "probes": list, "ends": dict, "probe": dict, "cost": dict}


def read_report(text: str, *, name: str) -> dict[str, Any]:
    """Return what a report.json holds, as today's version would have written it.

    Args:
        text: of the file.
        name: of the file, for messages.
    Raises:
        InputError: no report, or one of a newer version.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise _no_report(name, "it is not JSON") from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise _no_report(name, "it has no `schema`")
    if schema > SCHEMA:
        raise InputError(
            f"{name}: a newer version of bisect-train has written this report (schema {schema}, this version knows {SCHEMA})",
            hint="update bisect-train",
        )
    wrong = [key for key, kind in _KINDS.items() if not isinstance(data.get(key), kind)]
    if wrong or not isinstance(data.get("status"), str):
        raise _no_report(name, f"`{(wrong or ['status'])[0]}` is missing or of another kind")
    return {**_LATER_KEYS, **data}


def _no_report(name: str, problem: str) -> InputError:
    return InputError(
        f"{name}: this is no report of bisect-train: {problem}", hint="one is written by --json FILE or --out DIR"
    )
