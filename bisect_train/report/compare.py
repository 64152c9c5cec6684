"""`compare A B`: the two runs step by step, and in words where they first differ."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bisect_train.core.fingerprint import Fingerprint
from bisect_train.report.words import say_divergence, say_ending, say_number
from bisect_train.verdict.divergence import Divergence, Stage, StepRow, first_divergence, step_rows, unequal_counts

EQUAL_WORDS = {True: "equal", False: "differ", None: "-"}


def render_compare(left: Fingerprint, right: Fingerprint, *, left_name: str = "A", right_name: str = "B") -> RenderableType:
    """Return the table of two runs of the same seed, and the first difference in words.

    Args:
        left, right: what the two probes recorded, best with hashes at every step.
        left_name, right_name: what the runs are, such as `good end`.
    """
    divergence = first_divergence(left, right)
    rows = step_rows(left, right)
    parts: list[RenderableType] = [
        Text(say_divergence(divergence, left=left_name, right=right_name, unequal=unequal_counts(left, right))),
        Text(f"A is the {left_name}: {say_ending(left.ending)}; B is the {right_name}: {say_ending(right.ending)}."),
    ]
    if not rows:
        return Group(*parts, Text("Neither run recorded an optimizer step."))
    return Group(*parts, Text(""), _table(rows, divergence))


def _table(rows: Sequence[StepRow], divergence: Divergence | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold", show_edge=False)
    for name in ("step", "loss A", "loss B", "B - A", "gradient norm A", "B", "learning rate A", "B"):
        table.add_column(name, justify="right", no_wrap=False)
    for name in ("parameters", "batch"):
        table.add_column(name)
    first = divergence.step if divergence is not None and divergence.stage is not Stage.METRIC else None
    for row in rows:
        table.add_row(*_cells(row), style="bold" if row.step == first else None)
    return table


def _cells(row: StepRow) -> list[str]:
    # the norm before clipping, where there is clipping: the one after is the limit at most
    norms = [before if before is not None else after for before, after in zip(row.clip_norms, row.grad_norms, strict=True)]
    return [
        str(row.step),
        *(say_number(value) for value in row.losses),
        "0" if row.loss_delta == 0 else say_number(row.loss_delta, signed=True),
        *(say_number(value) for value in norms),
        *(say_number(value) for value in row.lrs),
        EQUAL_WORDS[row.has_equal_params],
        EQUAL_WORDS[row.has_equal_batch],
    ]
