"""The verdict for a terminal, by rich: plain words first, then tables; readable at 80 columns, without colours, and in a pipe.

Meaning never hangs on a colour: styles only repeat what the words say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bisect_train.report.across import say_cell
from bisect_train.report.inside import printable_patch, smallest_patch
from bisect_train.report.parts import ReportData
from bisect_train.report.sparks import Sparks
from bisect_train.report.triage_text import is_told, render_triage
from bisect_train.report.words import say_count, say_early_cost, say_number, say_pruned, say_seconds, say_share

NUM_PROBE_ROWS = 12
NUM_CANDIDATES = 10
NUM_PATCH_LINES = 40
COMMAND_WIDTH = 76
_WORDS = re.compile(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+")
SUCCESS_STYLE, OPEN_STYLE = "bold green", "bold yellow"


def render_text(report: ReportData) -> RenderableType:
    """Return the whole report for `Console.print`."""
    parts: list[RenderableType] = [Text(""), _headline(report), Text(report.summary)]
    parts += [_sentences(report.explanation)] if report.explanation else []
    for title, body in _sections(report):
        parts += [Text(""), Text(title, style="bold"), Padding(body, (0, 0, 0, 2), expand=False)]
    return Group(*parts, Text(""))


def _headline(report: ReportData) -> Text:
    return Text(report.headline.upper(), style=SUCCESS_STYLE if report.is_answered else OPEN_STYLE)


def _sections(report: ReportData) -> list[tuple[str, RenderableType]]:
    """Return titles and bodies of what there is to say."""
    sections: list[tuple[str, RenderableType]] = []
    if report.warnings:
        sections.append(("Warnings", _sentences([f"- {text}" for text in report.warnings])))
    if report.log_tail:
        sections.append(("Last lines of its output", Text(report.log_tail)))
    if report.candidates:
        sections.append(("What could be the one", _candidates(report)))
    if report.claims:
        sections.append(("The proof, by fresh runs", _claims(report)))
    if report.pair:
        sections.append(("The two changes on the good end", _pair_table(report)))
    if patch := smallest_patch(report):
        sections.append(("The smallest patch that does it", Text(_shorten_patch(patch))))
    if report.curves:
        step, last = report.curves[0].steps[0], report.curves[0].steps[-1]
        sections.append((f"The curves: {report.curves[0].metric} from step {step} to {last}", Sparks(report.curves)))
    if report.divergence_text:
        sections.append(("First difference", Text(report.divergence_text)))
    if is_told(report.triage):
        body = render_triage(report.triage, run="with it", baseline="before it", with_stacks=False)
        sections.append(("What it did to the run", body))
    if report.ends_story:
        sections.append(("What was compared", _sentences(report.ends_story)))
    coverage = [("covers", report.coverage.covers), ("cannot see", report.coverage.cannot_see)]
    coverage += [("tried before", report.coverage.tried)] if report.coverage.tried else []
    sections.append(("What the probe covers and cannot see", _pairs(coverage)))
    if report.probes:
        sections.append((_title_of_probes(report), _probes(report)))
    sections.append(("By hand", _by_hand(report)))
    sections.append(("Cost", Text(_cost(report))))
    return sections


def _shorten_patch(patch: str) -> str:
    lines = printable_patch(patch).splitlines()
    if len(lines) <= NUM_PATCH_LINES:
        return "\n".join(lines)
    return "\n".join(
        [*lines[:NUM_PATCH_LINES], f"and {len(lines) - NUM_PATCH_LINES} more lines: --out DIR writes culprit.patch"]
    )


def _sentences(sentences: Sequence[str]) -> RenderableType:
    return Group(*(Text(text) for text in sentences))


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold", show_edge=False)
    for name in columns:
        is_number = name in ("runs", "seed", "steps", "time", "probability")
        table.add_column(name, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return table


def _candidates(report: ReportData) -> RenderableType:
    table = _table("change", "title", "probability")
    for item in report.candidates[:NUM_CANDIDATES]:
        change = item.change
        name = f"{change.kind} {change.id[:8] if change.kind == 'commit' else change.id}"
        table.add_row(Text(name), Text(change.title), say_share(item.probability))
    left = len(report.candidates) - NUM_CANDIDATES
    return Group(table, Text(f"and {left} more in the JSON and HTML report")) if left > 0 else table


def _claims(report: ReportData) -> RenderableType:
    table = _table("claim", "result", "by", "runs")
    for claim in report.claims:
        reason = f" ({claim.reason})" if claim.status in ("did not hold", "could not be run") and claim.reason else ""
        runs = f"{claim.num_healthy} + {claim.num_sick}"
        table.add_row(Text(claim.text), Text(claim.status + reason), Text(claim.how), runs)
    return table


def _pair_table(report: ReportData) -> RenderableType:
    table = _table("with", report.metric.name)
    for cell in report.pair:
        table.add_row(Text(cell.name), Text(say_cell(cell, unit=report.metric.unit)))
    return table


def _pairs(pairs: Sequence[tuple[str, Sequence[str]]]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, texts in pairs:
        for idx, text in enumerate(texts):
            table.add_row(name if idx == 0 else "", Text(text))
    return table


def _title_of_probes(report: ReportData) -> str:
    total = len(report.probes)
    return f"The last {NUM_PROBE_ROWS} of {total} probes" if total > NUM_PROBE_ROWS else say_count(total, "probe").capitalize()


def _probes(report: ReportData) -> RenderableType:
    unit = f" ({report.metric.unit})" if report.metric.unit else ""
    table = _table("probe", "for", "seed", f"{report.metric.name}{unit}", "verdict", "time")
    for row in report.probes[-NUM_PROBE_ROWS:]:
        seed = f"{row.seed_idx}" + (f" again {row.repeat}" if row.repeat else "")
        value = say_number(row.value) if row.value is not None else row.outcome
        table.add_row(Text(row.what), row.purpose, seed, Text(value), row.said, say_seconds(row.wall_s))
    return table


def _by_hand(report: ReportData) -> RenderableType:
    lines = []
    for part in report.reproduce:
        lines += [Text(f"# {part.title}", style="dim")]
        lines += [Text(folded) for line in part.lines for folded in fold_command(line, width=COMMAND_WIDTH)]
    return Group(*lines)


def fold_command(line: str, *, width: int) -> list[str]:
    """Return a shell line broken between words, with the backslashes that let it be pasted; comments stay as they are."""
    if len(line) <= width or line.startswith("#"):
        return [line]
    folded, current = [], ""
    for word in _WORDS.findall(line):
        if current and len(current) + len(word) + 3 > width:
            folded.append(f"{current} \\")
            current = f"  {word}"
        else:
            current = f"{current} {word}" if current else word
    return [*folded, current]


def _cost(report: ReportData) -> str:
    cost = report.cost
    text = f"{say_count(cost.probes, 'probe')} run, {cost.cached} reused, {say_count(report.num_steps, 'training step')}"
    gpu = f", {say_seconds(cost.gpu_s)} of GPU time" if cost.gpu_s else ""
    early = f"; {say_early_cost(cost)}" if cost.early else ""
    early += f"; {say_pruned(cost.pruned)}" if cost.pruned else ""
    return f"{text}, {say_seconds(cost.wall_s)}{gpu}{early}; bisection {report.id}"
