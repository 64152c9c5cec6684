"""Sizes and ages on the command line, and the limit of the cache."""

from __future__ import annotations

from typing import Any

import rich_click as click

from bisect_train.core.amounts import parse_age_s, parse_size
from bisect_train.core.errors import InputError
from bisect_train_workers.upkeep import LIMIT_VARIABLE, find_limit


class SizeType(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """A size such as 20GB, in bytes."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return bytes."""
        try:
            return value if isinstance(value, int) else parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class AgeType(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic in newer click only
    """An age such as 30d, or a time such as 20m, in seconds."""

    def __init__(self, name: str = "AGE") -> None:
        """Take what it is called in the help."""
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return seconds."""
        try:
            return value if isinstance(value, float) else parse_age_s(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def limit_in_force() -> int:
    """Return what the cache may hold, bytes. Raises InputError where the variable is no size."""
    try:
        return find_limit()
    except ValueError as error:
        raise InputError(f"{LIMIT_VARIABLE}: {error}", hint=f"give it a size, or none: unset {LIMIT_VARIABLE}") from None
