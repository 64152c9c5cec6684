"""`compare A B`: the two runs step by step, and in words where they first differ."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bisect_train.core.fingerprint import Fingerprint
from bisect_train.report.rank_divergence import divergences_by_rank, first_rates
from bisect_train.report.words import SIGNAL_WORDS, say_divergence, say_ending, say_number
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
        Text(say_first_difference(left, right, left=left_name, right=right_name)),
        *_by_rank(left, right),
        *_by_group(left, right),
        Text(""),
        Text(f"A is the {left_name}: {say_ending(left.ending)}; B is the {right_name}: {say_ending(right.ending)}."),
    ]
    if not rows:
        return Group(*parts, Text("Neither run recorded an optimizer step."))
    return Group(*parts, Text(""), _table(rows, divergence))


def say_first_difference(one: Fingerprint, other: Fingerprint, *, left: str, right: str) -> str:
    """Return in words where two runs of the same seed first differ; `left`, `right` are their names."""
    return say_divergence(first_divergence(one, other), left=left, right=right, unequal=unequal_counts(one, other))


def _by_rank(left: Fingerprint, right: Fingerprint) -> list[RenderableType]:
    """Return the first difference of each rank with both values in full, where there are several ranks."""
    found = divergences_by_rank(left, right)
    if len(found) < 2 or all(divergence is None for _, divergence in found):
        return []
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold", show_edge=False)
    for name in ("rank", "first differs at step", "stage", "in", "A", "B"):
        table.add_column(name, overflow="fold")
    for rank, item in found:
        if item is None:
            table.add_row(str(rank), "nowhere", "-", "-", "-", "-")
            continue
        step = "-" if item.step is None else str(item.step)
        signal = SIGNAL_WORDS.get(item.signal, item.signal)
        values = (item.left.strip("'"), item.right.strip("'"))
        table.add_row(str(rank), step, *map(Text, (item.stage.value.replace("_", " "), signal, *values)))
    return [Text(""), table]


def _by_group(left: Fingerprint, right: Fingerprint) -> list[RenderableType]:
    """Return the learning rate of every parameter group where they first differ."""
    found = first_rates(left, right)
    if found is None:
        return []
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold", show_edge=False)
    for name in ("parameter group", "learning rate A", "learning rate B"):
        table.add_column(name, justify="right")
    for idx, (a, b) in enumerate(found.rates):
        table.add_row(
            str(idx), repr(a) if a is not None else "-", repr(b) if b is not None else "-", style="" if a == b else "bold"
        )
    where = f"Learning rates at step {found.step} on rank {found.rank}, where they first differ:"
    return [Text(""), Text(where), table]


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
