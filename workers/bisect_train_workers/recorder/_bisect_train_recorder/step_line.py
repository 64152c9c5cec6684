"""Writes the parts of a step's line as JSON by hand.

A line has the same keys at each step, and the program's work has pushed everything out of the
processor's caches: a few formatted strings take half the time of a dict and an encoder, and texts
that rarely change are kept.
"""

from __future__ import annotations

import json
from typing import Any, Iterable, List, Sequence


def number_text(value: Any) -> str:
    """Return a number or None as `json` writes it: floats to the last bit, NaN, Infinity, null."""
    if type(value) is float and value - value == 0.0:  # finite, and no subclass with a repr of its own
        return repr(value)
    return "null" if value is None else json.dumps(value, default=str)


def list_text(values: Sequence[Any]) -> str:
    """Return numbers as a JSON list."""
    return f"[{', '.join([number_text(value) for value in values])}]"


def dtype_names(dtypes: Iterable[Any]) -> List[str]:
    """Return the sorted names of torch dtypes without the prefix `torch.`."""
    return sorted([str(dtype).rsplit(".", 1)[-1] for dtype in dtypes])


class PlainText:
    """The parts of a line that are the same in nearly every step: kept, not rebuilt."""

    __slots__ = ("_key", "_lr_text", "_lrs", "_text")

    def __init__(self) -> None:
        """Start with no text."""
        self._key: Any = None
        self._text = ""
        self._lrs: Any = None
        self._lr_text = ""

    def of_rates(self, lrs: List[Any]) -> str:
        """Return learning rates as a JSON list."""
        if lrs != self._lrs:
            self._lrs, self._lr_text = lrs, list_text(lrs)
        return self._lr_text

    def of(self, fires: Sequence[Any], autocast: Any, is_skipped: bool, num_fires: int) -> str:
        """Return JSON keys and values without braces.

        Args:
            num_fires: fires of optimizers that really stepped.
        """
        first = fires[0]
        if len(fires) == 1:
            key: Any = (first.name, first.num_missing, first.param_dtypes, first.grad_dtypes, autocast, is_skipped, num_fires)
        else:
            key = ([(f.name, f.num_missing, f.param_dtypes, f.grad_dtypes) for f in fires], autocast, is_skipped, num_fires)
        if key != self._key:
            self._key, self._text = key, _plain_text(fires, autocast, is_skipped, num_fires)
        return self._text


def _plain_text(fires: Sequence[Any], autocast: Any, is_skipped: bool, num_fires: int) -> str:
    """Return what `PlainText.of` keeps."""
    part = {
        "optimizers": [fire.name for fire in fires],
        "missing_grads": sum([fire.num_missing for fire in fires]),
        "param_dtypes": dtype_names({dtype for fire in fires for dtype in fire.param_dtypes}),
        "grad_dtypes": dtype_names({dtype for fire in fires for dtype in fire.grad_dtypes}),
        "autocast": autocast,
        "skipped": is_skipped,
        "fires": num_fires,
    }
    return json.dumps(part)[1:-1]
