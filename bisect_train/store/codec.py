"""Values and probe results as stored: JSON as Python writes it (NaN and Infinity included), results zlib-compressed."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict
from typing import Any

from bisect_train.core.errors import MISSHAPEN, damaged
from bisect_train.core.fingerprint import Fingerprint
from bisect_train.core.probe import ProbeResult


def to_text(value: dict[str, Any]) -> str:
    """Return JSON text, pure ASCII (lone surrogates in a program's output survive).

    Raises:
        TypeError: the value is not JSON-able.
    """
    return json.dumps(value, separators=(",", ":"))


def of_text(text: str) -> dict[str, Any]:
    """Return the value that `to_text` wrote. Raises MachineError: it did not write this."""
    try:
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise damaged("a stored value", error) from None
    if not isinstance(value, dict):
        raise damaged("a stored value", ValueError(f"not a JSON object: {text[:40]!r}"))
    return value


def pack_result(result: ProbeResult) -> bytes:
    """Return a result as compressed JSON."""
    return zlib.compress(to_text(asdict(result)).encode("ascii"), 6)


def unpack_result(data: bytes) -> ProbeResult:
    """Return the result that `pack_result` wrote; keys that this version does not know are left out.

    Raises:
        MachineError: it did not write this.
    """
    try:
        return _result_of(of_text(zlib.decompress(data).decode("ascii")))
    except (zlib.error, *MISSHAPEN) as error:
        raise damaged("a stored result", error) from error


def _result_of(values: dict[str, Any]) -> ProbeResult:
    return ProbeResult(
        job_id=values["job_id"],
        fingerprint=Fingerprint.of_json(values["fingerprint"]),
        wall_s=values.get("wall_s", 0.0),
        log_tail=values.get("log_tail", ""),
        stacks=tuple((name, text) for name, text in values.get("stacks", ())),
        warnings=tuple(values.get("warnings", ())),
        node=values.get("node", ""),
        kept=values.get("kept", ""),
        is_warm=values.get("is_warm", False),
    )


def plain_text(text: str) -> str:
    """Return text that every database takes: lone surrogates and NUL characters replaced."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
