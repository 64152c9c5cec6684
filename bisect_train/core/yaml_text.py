"""YAML text to values, by PyYAML's safe loader, with its two gaps closed. Pure.

A value that does not fit its tag (`!!timestamp x`) raises whatever python raises there, and a few aliases of aliases stand for
billions of values, which whoever walks over them never finishes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

MAX_VALUES = 1_000_000
"""Values that a text may stand for, aliases written out."""
_MISFITS = (AttributeError, LookupError, TypeError, ArithmeticError)


def load_yaml_text(text: str) -> Any:
    """Return the value of a text.

    Raises:
        yaml.YAMLError: malformed, more than one document, a value that does not fit its tag, or too many values.
        ValueError: a date that is none.
        RecursionError: nested too deeply.
    """
    try:
        value = yaml.safe_load(text)
    except _MISFITS as error:
        raise _misfit(error) from None
    _check_size(value)
    return value


def load_yaml_documents(text: str) -> Iterator[Any]:
    """Yield the values of a text's documents. Raises as `load_yaml_text`."""
    documents = yaml.safe_load_all(text)
    while True:
        try:
            value = next(documents)
        except StopIteration:
            return
        except _MISFITS as error:
            raise _misfit(error) from None
        _check_size(value)
        yield value


def _misfit(error: Exception) -> yaml.YAMLError:
    return yaml.YAMLError(f"a value does not fit its tag ({type(error).__name__})")


def _check_size(value: Any) -> None:
    """Raise YAMLError where a value stands for too many values, or holds itself."""
    num, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        num += 1
        if num + len(waiting) > MAX_VALUES:
            itself = _holds_itself(value, inside=frozenset())
            raise yaml.YAMLError(
                "an alias refers to itself" if itself else f"its aliases stand for more than {MAX_VALUES:,} values"
            )
        if isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, (list, tuple)):
            waiting += item


def _holds_itself(value: Any, *, inside: frozenset[int], whole: set[int] | None = None) -> bool:
    """Return whether a value is part of itself; `whole` are ids of those that are known not to be."""
    whole = set() if whole is None else whole
    if not isinstance(value, (dict, list, tuple)) or id(value) in whole:
        return False
    if id(value) in inside:
        return True
    items = value.values() if isinstance(value, dict) else value
    if any(_holds_itself(item, inside=inside | {id(value)}, whole=whole) for item in items):
        return True
    whole.add(id(value))
    return False
