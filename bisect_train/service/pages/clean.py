"""What the templates do with each text that they put out; see `core.shown`."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from bisect_train.core.shown import one_line, printable

__all__ = ["finalize", "one_line", "printable"]


def finalize(value: Any) -> Any:
    """Make every string that a template puts out printable; what is markup already stays."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
