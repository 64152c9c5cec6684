"""Sizes and ages as a person writes and reads them: `20GB`, `30d`. Pure functions on text."""

from __future__ import annotations

import re

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
MAX_BYTES = 2**63 - 1
SIZE_RULE = "a number with B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (of 1024), such as 20GB"
AGE_RULE = "a number with s, m, h, d or w, such as 30d"


def parse_size(text: str) -> int:
    """Return a size in bytes. Raises ValueError, with the rule, for anything else than `20GB` and the like."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", text.upper())
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"{text!r} is not a size: {SIZE_RULE}")
    size = float(found[1]) * _UNITS[found[2]]
    if size > MAX_BYTES:
        raise ValueError(f"{text[:40]!r} is more than any disk holds")
    return int(size)


def parse_age_s(text: str) -> float:
    """Return an age in seconds; 0 needs no unit. Raises ValueError, with the rule, for anything but `30d` and the like."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhdw]?)\s*", text.lower())
    if found is None or (not found[2] and float(found[1])):
        raise ValueError(f"{text!r} is not a time: {AGE_RULE}")
    return float(found[1]) * _SECONDS.get(found[2], 0.0)


def say_time(time_s: float) -> str:
    """Return a time as a person would give it: `90 s`, `1 h 30 min`."""
    minutes = round(time_s / 60)
    if time_s < 120:
        return f"{time_s:.3g} s" if time_s < 10 else f"{time_s:.0f} s"
    hours, minutes = divmod(minutes, 60)
    return " ".join([*([f"{hours} h"] if hours else []), *([f"{minutes} min"] if minutes or not hours else [])])


def say_size(num_bytes: int) -> str:
    """Return bytes as text with three digits at least, `1.24 GB`."""
    if num_bytes < 1000:
        return f"{num_bytes} B"
    units = ["kB", "MB", "GB", "TB"]
    value = num_bytes / 1000
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.{0 if value >= 99.5 else 1 if value >= 9.95 else 2}f} {units[0]}"


def say_age(age_s: float) -> str:
    """Return an age as text, in its largest whole unit: `3 d`."""
    for unit, size_s in (("d", 86_400), ("h", 3600), ("min", 60)):
        if age_s >= size_s:
            return f"{int(age_s // size_s)} {unit}"
    return f"{max(0, int(age_s))} s"
