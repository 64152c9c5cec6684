"""The changes between two ends as a person or a program reads them, before anything runs."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bisect_train.changes.space import ChangeSpace
from bisect_train.cli.estimate import say_duration, say_estimates, usual_duration_s
from bisect_train.core.changes import Change, ChangeKind
from bisect_train.core.question import ConfigHold, Question
from bisect_train.core.secrets import mask_command
from bisect_train.report.words import KIND_NAMES, say_counts, short_id
from bisect_train.store.contract import Store

_HOLDS = {
    ConfigHold.TRAVEL: "each commit has its own",
    ConfigHold.GOOD: "that of the good end for all commits",
    ConfigHold.BAD: "that of the bad end for all commits",
    ConfigHold.SPLIT: "split from the commits, its keys are changes of their own",
}


def print_changes(question: Question, space: ChangeSpace, store: Store, console: Console) -> None:
    """Print the changes by kind, numbered in the order in which they are searched, and what a search would take."""
    coupled = coupled_keys(space.changes)
    for kind in dict.fromkeys(change.kind for change in space.changes):
        rows = [(idx, change) for idx, change in enumerate(space.changes) if change.kind is kind]
        console.print(f"[bold]{say_counts({kind.value: len(rows)})}[/bold]")
        table = Table(box=None, pad_edge=False, show_header=False)
        for _ in range(4):
            table.add_column(overflow="fold")
        for idx, change in rows:
            table.add_row(
                *map(escape, (f"{idx + 1:>5}", _id_of(change), _title_of(change, idx, space), _note_of(change, coupled)))
            )
        console.print(table)
    if space.held:
        names = ", ".join(sorted(f"{KIND_NAMES[change.kind]} {short_id(change)}" for change in space.held))
        console.print(f"not searched, as the bad end has it: {names}", markup=False, soft_wrap=True)
    if question.config_path:
        console.print(f"{question.config_path}: {_HOLDS[question.hold]}", markup=False, soft_wrap=True)
    if len(_counts(space)) != 1:
        console.print(f"in all: {say_counts(_counts(space))}", markup=False)
    for line in say_estimates(question, len(space.changes)) if space.changes else ():
        console.print(f"probes   {line}", markup=False, soft_wrap=True)
    if space.changes and (duration := say_duration(store, question, len(space.changes))):
        console.print(f"time     {duration}", markup=False, soft_wrap=True)


def changes_to_json(question: Question, space: ChangeSpace, store: Store) -> dict[str, Any]:
    """Return the changes as JSON: number, kind, id, title, detail, whether skipped, the keys they seem to go with."""
    coupled = coupled_keys(space.changes)
    return {
        "schema": 1,
        "num_changes": _counts(space),
        "hold_config": question.hold.value,
        "command": shlex.join(mask_command(question.command)),
        "held": [{"kind": change.kind.value, "id": change.id} for change in sorted(space.held, key=lambda item: item.key)],
        "changes": [
            {
                "number": idx + 1,
                "kind": change.kind.value,
                "id": change.id,
                "title": change.title,
                "detail": change.detail,
                "is_skipped": idx + 1 in space.skipped,
                "goes_with": list(coupled.get(change.id, ())),
            }
            for idx, change in enumerate(space.changes)
        ],
        "usual_probe_s": usual_duration_s(store, question),
        "expected_probes": list(say_estimates(question, len(space.changes))) if space.changes else [],
    }


def coupled_keys(changes: Sequence[Change]) -> Mapping[str, tuple[str, ...]]:
    """Return config keys that seem to be meant together, by id: siblings of which one appears or goes.

    A program that is told to use another scheduler wants that scheduler's keys, too. It is a guess, for a reader: the search
    finds out by itself which sets do not run.
    """
    siblings: dict[str, list[Change]] = defaultdict(list)
    for change in changes:
        parent, dot, _ = change.id.rpartition(".")
        if change.kind is ChangeKind.CONFIG and dot:
            siblings[parent].append(change)
    found: dict[str, tuple[str, ...]] = {}
    for group in siblings.values():
        is_reshaped = any("(absent)" in change.title for change in group)
        if len(group) > 1 and is_reshaped:
            found |= {change.id: tuple(item.id for item in group if item is not change) for change in group}
    return found


def _counts(space: ChangeSpace) -> dict[str, int]:
    return dict(Counter(change.kind.value for change in space.changes))


def _id_of(change: Change) -> str:
    return change.id[:12] if change.kind is ChangeKind.COMMIT else change.id


def _title_of(change: Change, idx: int, space: ChangeSpace) -> str:
    title = change.title.removeprefix(f"{change.id}:").strip()
    return title + (" (skipped)" if idx + 1 in space.skipped else "")


def _note_of(change: Change, coupled: Mapping[str, tuple[str, ...]]) -> str:
    others = coupled.get(change.id, ())
    return f"goes with {', '.join(others[:3])}{' ...' if len(others) > 3 else ''}" if others else change.detail
