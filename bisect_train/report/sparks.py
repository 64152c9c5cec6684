"""Curves in one line of text each, on one scale: enough to see where two runs part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from bisect_train.report.parts import CurvePart
from bisect_train.report.words import say_number

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-~=+*#"
NOT_FINITE = "!"
MIN_WIDTH, MAX_WIDTH = 8, 60


@dataclass(frozen=True, slots=True)
class Sparks:
    """Curves for `Console.print`, one below the other, with their first and last values."""

    curves: Sequence[CurvePart]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield a table without lines."""
        table = Table.grid(padding=(0, 2))
        finite = [value for curve in self.curves for value in curve.values if math.isfinite(value)]
        low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
        said = [f"{say_number(curve.values[0])} -> {say_number(curve.values[-1])}" for curve in self.curves]
        taken = max(map(len, said), default=0) + max((len(curve.label) for curve in self.curves), default=0) + 4
        width = max(MIN_WIDTH, min(MAX_WIDTH, options.max_width - taken))
        for curve, ends in zip(self.curves, said, strict=True):
            spark = draw_spark(curve.values, low=low, high=high, is_ascii=options.ascii_only, width=width)
            table.add_row(Text(curve.label), Text(spark, no_wrap=True), Text(ends))
        yield table


def draw_spark(values: Sequence[float], *, low: float, high: float, is_ascii: bool = False, width: int = MAX_WIDTH) -> str:
    """Return one character per value, or per mean of neighbours where they are more than `width`.

    Args:
        values: in order; one that is not finite is shown as `!`.
        low, high: the lowest and the highest block.
        is_ascii: whether only ASCII may be used.
        width: characters, at most.
    """
    num_bins = min(width, len(values))
    edges = [round(idx * len(values) / num_bins) for idx in range(num_bins + 1)] if num_bins else []
    blocks, span = ASCII_BLOCKS if is_ascii else BLOCKS, (high - low) or 1.0
    means = [fmean(values[first:last]) for first, last in pairwise(edges)]
    heights = [(value - low) / span * (len(blocks) - 1) for value in means]
    return "".join(blocks[round(height)] if math.isfinite(height) else NOT_FINITE for height in heights)
