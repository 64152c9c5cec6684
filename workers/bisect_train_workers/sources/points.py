"""What a reader of one file gives: values with their steps, and how finely they are written. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

STEP_NAMES = ("step", "global_step", "_step", "trainer/global_step", "iteration", "iter", "steps")
"""Usual names of the step beside a value, the likeliest first."""

_NUMBER = re.compile(r"[-+]?([\d,_]*)(?:\.(\d*))?(?:[eE]([-+]?\d+))?")
_NO_NUMBERS = ("nan", "inf", "infinity")


class Written(str):
    """A number as a JSON text has it, so that its digits can be counted; strings stay plain."""

    __slots__ = ()


@dataclass(slots=True)
class Precision:
    """How finely values are written: the most that one of them shows.

    Attributes:
        decimals, digits: of text, None before the first number.
        bits: of binary values, None for text.
    """

    decimals: int | None = None
    digits: int | None = None
    bits: int | None = None

    def take(self, text: str) -> None:
        """Count the digits of a printed number; nan and inf show none."""
        match = _NUMBER.fullmatch(text.strip())
        if match is None or not (match[1] or match[2]):
            return
        whole, fraction = match[1].replace(",", "").replace("_", ""), match[2] or ""
        decimals = len(fraction) - int((match[3] or "0")[:6])
        digits = max(1, len((whole + fraction).lstrip("0")))
        self.decimals = decimals if self.decimals is None else max(self.decimals, decimals)
        self.digits = digits if self.digits is None else max(self.digits, digits)

    def take_bits(self, bits: int) -> None:
        """Note the significand of a binary value."""
        self.bits = bits if self.bits is None else min(self.bits, bits)


@dataclass(slots=True)
class Points:
    """Values in the order in which a program wrote them.

    Attributes:
        values, steps: of the same length; a step is None where none is written.
        precision: see Precision.
        known: names that the file has (tags, columns, keys), for a message about one that it has not.
        span: when it was begun and last written, as the file itself says; seconds since the epoch, None if it does not.
        note: what a reader should know, or "".
    """

    values: list[float] = field(default_factory=list)
    steps: list[int | None] = field(default_factory=list)
    precision: Precision = field(default_factory=Precision)
    known: dict[str, None] = field(default_factory=dict)
    span: tuple[float, float] | None = None
    note: str = ""

    def add(self, value: float, step: int | None) -> None:
        """Take a value."""
        self.values.append(value)
        self.steps.append(step)

    def add_text(self, text: str, step: int | None) -> None:
        """Take a printed value; what is no number is passed over."""
        value = number_of(text)
        if value is not None:
            self.precision.take(text)
            self.add(value, step)

    def purge(self, step: int | None) -> None:
        """Leave out what was written for this step and later ones: a program that was started again does them anew."""
        if step is None:
            return
        kept = [idx for idx, old in enumerate(self.steps) if old is None or old < step]
        self.values = [self.values[idx] for idx in kept]
        self.steps = [self.steps[idx] for idx in kept]

    def known_steps(self) -> tuple[int, ...]:
        """Return the steps, () unless each value has one."""
        known = [step for step in self.steps if step is not None]
        return tuple(known) if len(known) == len(self.values) else ()


def join_runs(parts: Iterable[Points]) -> Points:
    """Return what several files of one program say that was started again: later ones replace steps that they redo."""
    joined = Points()
    for part in parts:
        first = next((step for step in part.steps if step is not None), None)
        joined.purge(first)
        for value, step in zip(part.values, part.steps, strict=True):
            joined.add(value, step)
        for name in ("decimals", "digits"):
            both = [item for item in (getattr(joined.precision, name), getattr(part.precision, name)) if item is not None]
            setattr(joined.precision, name, max(both, default=None))
        if part.precision.bits is not None:
            joined.precision.take_bits(part.precision.bits)
        joined.known |= part.known
        joined.note = part.note or joined.note
    return joined


def number_of(text: str) -> float | None:
    """Return `1234.5`, `1e-4`, `nan` or `-Infinity` as a number, None for anything else: `0,35` could be 0.35 or 35."""
    try:
        return float(text.strip())
    except ValueError:
        return None


def step_of(value: Any) -> int | None:
    """Return a step as it is written (`12`, `12.0`), None for what is none."""
    number = number_of(value) if isinstance(value, str) else None
    return int(number) if number is not None and number == number and abs(number) < 2**62 else None


def load_json(text: str) -> Any:
    """Return a JSON text with its numbers as `Written`, NaN and Infinity among them.

    Raises:
        ValueError: it is none.
    """
    try:
        return json.loads(text, parse_float=Written, parse_int=Written, parse_constant=Written)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def look_up(data: Any, key: str) -> Any:
    """Return what stands at a dotted key: the key itself if there is one, else through nested mappings; None if nothing."""
    if not isinstance(data, dict):
        return None
    if key in data:
        return data[key]
    for idx in (at for at, char in enumerate(key) if char in "./"):
        if isinstance(data.get(key[:idx]), dict):
            found = look_up(data[key[:idx]], key[idx + 1 :])
            if found is not None:
                return found
    return None


def text_of_number(value: Any) -> str | None:
    """Return a number's text from JSON; of strings only `NaN` and `Infinity`, which some writers put in quotes."""
    if isinstance(value, Written):
        return str(value)
    if isinstance(value, str) and value.strip().lstrip("+-").lower() in _NO_NUMBERS:
        return value
    return None


def step_beside(data: Any, step_key: str) -> int | None:
    """Return the step in a JSON object: at this key, or with "" at the first of the usual ones."""
    for name in (step_key,) if step_key else STEP_NAMES:
        step = step_of(look_up(data, name))
        if step is not None:
            return step
    return None


def keys_of(data: Any, prefix: str = "", depth: int = 4) -> list[str]:
    """Return the dotted keys of the numbers in a JSON object."""
    found = []
    for key, value in data.items() if isinstance(data, dict) else ():
        if isinstance(value, dict) and depth:
            found += keys_of(value, f"{prefix}{key}.", depth - 1)
        elif text_of_number(value) is not None:
            found.append(f"{prefix}{key}")
    return found
