"""Rewrite a metric's pattern so that it finds `nan` and `inf` where it asks for digits. Pure functions on text.

A small scanner and not python's own parser of regular expressions, which is private and changes between versions. It
must know only enough to tell which parentheses capture.
"""

from __future__ import annotations

import re

_NON_FINITE = "(?i:[-+]?(?:nan|inf(?:inity)?)(?![a-z_]))"
"""Nan or infinity as languages print them; the last part keeps `info` and `nanoseconds` out."""


def compile_non_finite(regex: re.Pattern[str]) -> re.Pattern[str] | None:
    """Return the expression with the content of its number group replaced by nan or inf.

    Args:
        regex: its number group is the one named `value`, else its first.
    Returns:
        None if it has no group, or is nothing any more after the replacement (a reference into the group, say).
    """
    if not regex.groups:
        return None
    number = regex.groupindex.get("value", 1)
    try:
        begin, end = find_group(regex.pattern, number, is_verbose=bool(regex.flags & re.VERBOSE))
        return re.compile(regex.pattern[:begin] + _NON_FINITE + regex.pattern[end:])
    except (re.error, LookupError, ValueError):  # the last two: a comment inside `(?x:...)` misled the scanner
        return None


def find_group(pattern: str, number: int, *, is_verbose: bool = False) -> tuple[int, int]:
    """Return where the content of the `number`-th capturing group (from 1) begins and ends.

    Raises:
        LookupError: there is no such group.
        ValueError: the parentheses of the pattern do not match.
    """
    num_captures, idx = 0, 0
    opened: list[tuple[int, int]] = []  # number of each open group, 0 if it captures nothing, and where its content begins
    while idx < len(pattern):
        end = _skip_text(pattern, idx, is_verbose=is_verbose)
        if end > idx:
            idx = end
        elif pattern[idx] == "(":
            name = re.compile(r"\(\?P<\w+>").match(pattern, idx)
            is_capture = name is not None or not pattern.startswith("(?", idx)
            num_captures += is_capture
            idx = name.end() if name else _after_condition(pattern, idx)
            opened.append((num_captures if is_capture else 0, idx))
        else:
            found, begin = opened.pop()
            if found == number:
                return begin, idx
            idx += 1
    raise LookupError(f"no group {number} in {pattern!r}")


def _skip_text(pattern: str, idx: int, *, is_verbose: bool) -> int:
    """Return where the element at `idx` ends; `idx` itself at a parenthesis."""
    if pattern.startswith("(?#", idx):
        return pattern.index(")", idx) + 1
    char = pattern[idx]
    if char in "()":
        return idx
    if char == "\\":
        return idx + 2
    if char == "[":
        return _class_end(pattern, idx)
    if char == "#" and is_verbose:
        return (pattern + "\n").index("\n", idx) + 1
    return idx + 1


def _class_end(pattern: str, idx: int) -> int:
    """Return where the character class at `idx` ends; a bracket at its very start stands for itself."""
    idx += 2 if pattern.startswith("[^", idx) else 1
    idx += pattern.startswith("]", idx)
    while pattern[idx] != "]":
        idx += 2 if pattern[idx] == "\\" else 1
    return idx + 1


def _after_condition(pattern: str, idx: int) -> int:
    """Return where the content of the nameless group at `idx` begins; the parentheses in `(?(1)a|b)` hold no group."""
    return pattern.index(")", idx) + 1 if pattern.startswith("(?(", idx) else idx + 1
