"""Whether values that a lock file gives are of the kinds that its readers count on; what else it holds is free."""

from __future__ import annotations

from typing import Any

from bisect_train.changes.packages.sources import Source

EACH = "*"
"""Key of a shape that all values of a mapping must have."""
_WORDS = {"dict": "a table", "list": "a list", "str": "a text"}

Shape = Any
"""A type, a tuple of types, `[shape]` for a list of such, `{key: shape}` for a table; a key that is not there is well."""


def check_shape(source: Source, value: Any, shape: Shape, *, place: str) -> None:
    """Raise InputError unless a value has a shape.

    Args:
        source: file that it is from.
        value: any.
        shape: see `Shape`.
        place: where the value stands, for messages.
    """
    kind = list if isinstance(shape, list) else dict if isinstance(shape, dict) else shape
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        rule = " or ".join(_WORDS.get(item.__name__, item.__name__) for item in kinds)
        raise source.refuse(str(value), f"this must be {rule}", line=place, hint="write the lock file anew")
    if isinstance(shape, list):
        for idx, item in enumerate(value, start=1):
            check_shape(source, item, shape[0], place=f"{place} {idx}")
    elif isinstance(shape, dict) and isinstance(value, dict):
        for key, item in value.items():
            inner = shape.get(key, shape.get(EACH))
            if inner is not None:
                check_shape(source, item, inner, place=f"{place}, {key}")
