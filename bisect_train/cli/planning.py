"""What several commands say before anything runs: titles, the list of changes, the dry run."""

from __future__ import annotations

import math
import shlex
from collections import Counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bisect_train.changes.fixup import FixupUse, refuse_unused
from bisect_train.changes.space import ChangeSpace
from bisect_train.cli.asking import config_ends
from bisect_train.cli.options import Asked
from bisect_train.core.errors import InputError
from bisect_train.core.question import ConfigEnd, Question
from bisect_train.report.words import say_count


def config_files(asked: Asked) -> tuple[ConfigEnd | None, ConfigEnd | None]:
    """Return the config files of both ends, or (None, None) when the config travels with the commit.

    Raises:
        InputError: only one of them was given.
    """
    if asked.good_config is None and asked.bad_config is None:
        return None, None
    if asked.good_config is None or asked.bad_config is None:
        raise InputError("--good-config and --bad-config belong together", hint="give both, or neither")
    return config_ends(asked.good_config, asked.bad_config, ())


def title_of(question: Question, space: ChangeSpace) -> str:
    """Return one line for lists: what is compared."""
    asked = question.range
    parts = []
    if asked.goods != (asked.bad,):
        parts.append(f"{', '.join(good[:8] for good in asked.goods)}..{asked.bad[:8]}")
    if question.good_config and question.bad_config:
        parts.append(f"{question.good_config.path} .. {question.bad_config.path}")
    return f"{' and '.join(parts)} ({count_changes(space)})"


def count_changes(space: ChangeSpace) -> str:
    """Return such as `12 commits, 3 config keys`."""
    words = {"commit": ("commit", "commits"), "config": ("config key", "config keys")}
    counts = Counter(change.kind.value for change in space.changes)
    texts = [f"{num} {words.get(kind, (kind, kind + 's'))[num != 1]}" for kind, num in counts.items()]
    return ", ".join(texts) or "no changes"


def print_changes(space: ChangeSpace, console: Console) -> None:
    """Print the changes between the two ends, oldest first."""
    table = Table(box=None, pad_edge=False)
    for name in ("#", "kind", "change", "title", "detail"):
        table.add_column(name, overflow="fold", no_wrap=name in ("#", "kind", "change"))
    for idx, change in enumerate(space.changes):
        short = change.id[:12] if change.kind.value == "commit" else change.id
        skipped = " (skipped)" if idx + 1 in space.skipped else ""
        table.add_row(str(idx + 1), change.kind.value, escape(short), escape(change.title + skipped), escape(change.detail))
    console.print(table)


def survey_fixups(space: ChangeSpace) -> tuple[str, ...]:
    """Return for each `--fixup` a line that says how many commits take it.

    Raises:
        InputError: none of them does.
    """
    uses = space.survey_fixups()
    refuse_unused(uses)
    return tuple(_say_use(use) for use in uses)


def _say_use(use: FixupUse) -> str:
    if use.num_tried == use.num_states:
        return f"--fixup {use.path} applies to {use.num_applied:,} of {say_count(use.num_states, 'commit')}"
    tried = f"the {use.num_tried:,} commits that were tried ({use.num_states:,} in all)"
    return f"--fixup {use.path} applies to {use.num_applied:,} of {tried}"


def warn_of_idle_priors(space: ChangeSpace) -> None:
    """Warn on stderr of each rule for priors that matches no change."""
    for text in space.priors.idle:
        warning = f"bisect-train: warning: --prior {text!r} matches no change of the range"
        Console(stderr=True, highlight=False).print(warning, markup=False, soft_wrap=True)


def print_dry_run(question: Question, space: ChangeSpace, title: str) -> int:
    """Say what a bisection would do; return exit status 0."""
    console = Console(highlight=False)
    fixups = survey_fixups(space)
    num = max(1, len(space.changes))
    console.print(f"would bisect {title}", markup=False)
    console.print(f"command   {shlex.join(question.command)}", markup=False)
    console.print(f"python    {question.settings.python}", markup=False)
    console.print(f"probe     {question.rung.name}, at most {question.settings.timeout_s:g} s", markup=False)
    for line in fixups:
        console.print(f"patch     {line}", markup=False)
    metric = question.metric
    console.print(
        f"decides   {metric.name} ({metric.reduce}, {metric.better} is better), {question.criterion.value}", markup=False
    )
    for text, num_matched in space.priors.num_matched:
        console.print(f"prior     {text} ({say_count(num_matched, 'change')})", markup=False, soft_wrap=True)
    ends, search, proof = "8 to 18", math.ceil(math.log2(num)) if num > 1 else 0, "6 to 60"
    console.print(f"probes    {ends} to prove the ends, about {search} to search, {proof} to prove the answer", markup=False)
    return 0
