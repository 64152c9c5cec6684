"""What is kept, as a table and as JSON."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bisect_train.cli.stock import ORDER, Stock
from bisect_train.cli.stored_results import ResultGroup
from bisect_train.core.amounts import say_age, say_size
from bisect_train.report.words import say_count
from bisect_train_workers.upkeep import CacheItem


def print_stock(stock: Stock, groups: Sequence[ResultGroup], console: Console, *, limit_bytes: int) -> None:
    """Print what is kept by kind, then the results by where they come from."""
    table = _table("kept", "number", "size", "last used", "in use or needed")
    table.add_row(*_row_of_bisections(stock, groups))
    for kind in ORDER:
        found = [item for item in stock.items if item.kind == kind]
        if found:
            held = [item for item in found if item.held_by]
            table.add_row(kind, str(len(found)), say_size(_bytes(found)), _say_ages(found), _say_held(held))
    console.print(table)
    for group in groups:
        _say(
            console, f"{say_count(group.num, 'result')} ({say_size(group.num_bytes)}), {group.num_reusable} reusable here now:"
        )
        _say(console, f"  {group.hardware_class}; {group.interpreter}")
    _say(console, f"in all {say_size(stock.total_bytes)}, limit {say_size(limit_bytes)}")
    _say(console, f"in {stock.home}" + ("" if stock.node.path == stock.home / "node" else f" and {stock.node.path}"))


def stock_to_json(stock: Stock, groups: Sequence[ResultGroup], *, limit_bytes: int) -> dict[str, Any]:
    """Return what is kept as JSON: sizes in bytes, times in seconds since the epoch."""
    return {
        "schema": 1,
        "home": str(stock.home),
        "node": str(stock.node.path),
        "total_bytes": stock.total_bytes,
        "limit_bytes": limit_bytes,
        "database_bytes": stock.database_bytes,
        "trouble": str(stock.trouble) if stock.trouble else None,
        "bisections": [
            {"id": item.id, "status": item.status, "last_s": stock.last_s[item.id], "is_running": item.id in stock.running}
            for item in stock.bisections
        ],
        "results": [
            {
                "hardware_class": group.hardware_class,
                "interpreter": group.interpreter,
                "num": group.num,
                "bytes": group.num_bytes,
                "num_reusable": group.num_reusable,
            }
            for group in groups
        ],
        "items": [item_to_json(item) for item in stock.items],
    }


def item_to_json(item: CacheItem) -> dict[str, Any]:
    """Return an item as JSON."""
    return {
        "kind": item.kind,
        "path": str(item.path),
        "bytes": item.num_bytes,
        "last_use_s": item.last_use_s,
        "held_by": item.held_by or None,
    }


def print_items(items: Sequence[CacheItem], console: Console) -> None:
    """Print items one by one."""
    table = _table("kind", "size", "last used", "folder")
    for item in items:
        table.add_row(item.kind, say_size(item.num_bytes), _say_ages([item]), escape(str(item.path)))
    console.print(table)


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in names:
        is_number = name in ("number", "size")
        table.add_column(name, no_wrap=name != "folder", overflow="fold", justify="right" if is_number else "left")
    return table


def _row_of_bisections(stock: Stock, groups: Sequence[ResultGroup]) -> tuple[str, ...]:
    num = len(stock.bisections)
    ages = [time.time() - last_s for last_s in stock.last_s.values()]
    said = f"{len(stock.running)} running, " if stock.running else ""
    said += say_count(sum(group.num for group in groups), "result")
    return "bisection", str(num), say_size(stock.database_bytes), _say_range(ages), said


def _bytes(items: Sequence[CacheItem]) -> int:
    return sum(item.num_bytes for item in items)


def _say_held(held: Sequence[CacheItem]) -> str:
    return f"{len(held)} ({say_size(_bytes(held))})" if held else ""


def _say_ages(items: Sequence[CacheItem]) -> str:
    return _say_range([time.time() - item.last_use_s for item in items if item.last_use_s])


def _say_range(ages_s: Sequence[float]) -> str:
    if not ages_s:
        return ""
    low, high = say_age(min(ages_s)), say_age(max(ages_s))
    return f"{low} ago" if low == high else f"{low} to {high} ago"


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
