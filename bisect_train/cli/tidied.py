"""What `cache gc` says: what would go or went, what is left behind, why the rest stays."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from bisect_train.cli.cache_table import print_items
from bisect_train.cli.stock import Stock, take_stock
from bisect_train.cli.tidying import Chosen, Tidied
from bisect_train.core.amounts import say_size
from bisect_train.report.words import say_count
from bisect_train.store.contract import BISECTION_HINT, pick_prefix
from bisect_train_workers.leftovers import Leftover
from bisect_train_workers.upkeep import CacheItem


def ids_of(stock: Stock, named: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the bisections that were named by the beginning of theirs.

    Raises:
        InputError: none or several begin like this.
        MachineError: the database cannot be read.
    """
    if named and stock.trouble is not None:
        raise stock.trouble
    ids = sorted(stored.id for stored in stock.bisections)
    return tuple(pick_prefix(name, ids, what="bisection", hint=BISECTION_HINT) for name in named)


def report_plan(stock: Stock, chosen: Chosen, console: Console) -> None:
    """Print what would go."""
    _print_bisections(chosen, console)
    if chosen.items:
        print_items(chosen.items, console)
    _print_leftovers(chosen.leftovers, console)
    _say(console, f"would remove {_count(chosen.items)} of {say_size(stock.total_bytes)}")


def report_tidied(stock: Stock, chosen: Chosen, tidied: Tidied, console: Console, *, limit_bytes: int) -> int:
    """Print what went, what did not, and whether anything is left behind; return the exit status."""
    _print_bisections(chosen, console)
    if tidied.items:
        print_items(tidied.items, console)
    for item, why in tidied.refused:
        _say(console, f"stays: {item.kind} {item.path}: {why}")
    swept = [item for item in chosen.leftovers if item not in tidied.leftovers]
    _print_leftovers(swept, console)
    after = take_stock(stock.home)
    _say(console, f"removed {_count(tidied.items)}; {say_size(after.total_bytes)} stay, limit {say_size(limit_bytes)}")
    if after.total_bytes > limit_bytes:
        _say(console, _say_why(after))
    for left in tidied.leftovers:
        _say(console, f"left behind: {left.what}: {left.where}")
    if not tidied.leftovers:
        _say(console, "nothing is left behind: no process, no checkout in use, no file of a dead run")
    if stock.trouble is not None:
        raise stock.trouble
    return 1 if tidied.refused or tidied.leftovers else 0


def _say_why(stock: Stock) -> str:
    held = [item for item in stock.items if item.held_by]
    kept = [item for item in stock.items if item.kind == "kept probe"]
    parts = [f"{say_size(stock.database_bytes)} of bisections (--bisections-older-than AGE)"]
    parts += [f"{_count(held)} in use or needed"] if held else []
    parts += [f"{_count(kept)} kept for a person (--kept)"] if kept else []
    return f"above the limit all the same: {', '.join(parts)}"


def _print_bisections(chosen: Chosen, console: Console) -> None:
    for stored in chosen.bisections:
        _say(console, f"bisection {stored.id}: {stored.title}")


def _print_leftovers(leftovers: Sequence[Leftover], console: Console) -> None:
    for left in leftovers:
        _say(console, f"{left.what}: {left.where}")


def _count(items: Sequence[CacheItem]) -> str:
    return f"{say_count(len(items), 'item')} ({say_size(sum(item.num_bytes for item in items))})"


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
