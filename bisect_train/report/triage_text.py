"""Triage for a terminal: the findings in order, one row a rank, where a hanging run waits, samples side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bisect_train.report.triage_parts import RankRow, SamplePair, SecondLook, StackPart, TriagePart
from bisect_train.report.triage_view import say_evidence, say_place
from bisect_train.report.words import say_number, shorten
from bisect_train.verdict.triage import Finding, SecondRun

SECOND_WORDS = {
    SecondRun.ANOMALY: "A second run, with torch's anomaly detection",
    SecondRun.DETAIL: "A second run, with TORCH_DISTRIBUTED_DEBUG=DETAIL",
    SecondRun.PROFILE: "A second run of both sides, with torch's profiler",
}
NUM_VALUES = 8  # of a sample, on a line
NUM_FINDINGS = 8


def render_triage(
    part: TriagePart, *, run: str = "run", baseline: str = "baseline", with_stacks: bool = True
) -> RenderableType:
    """Return the section on the kind of failure.

    Args:
        part: what is known.
        run, baseline: names of the two runs.
        with_stacks: whether the stacks themselves are printed below the places where the ranks wait.
    """
    parts: list[RenderableType] = [Text(headline_of(part), style="bold")]
    for number, finding in enumerate(part.findings[:NUM_FINDINGS], start=1):
        parts.append(Padding(Group(*_finding(number, finding)), (0, 0, 0, 2), expand=False))
    if len(part.findings) > NUM_FINDINGS:
        parts.append(Text(f"  and {len(part.findings) - NUM_FINDINGS} more in the JSON report"))
    if not part.findings:
        parts += [Text(f"  Looked at: {'; '.join(part.looked_at)}.")]
    if part.cannot_see and not part.findings:
        parts += [Text("  Cannot be seen in such a run:"), *(Text(f"  - {text}") for text in part.cannot_see)]
    parts += [*_second(part.second), *_ranks(part, run, baseline), *_samples(part.samples, run, baseline)]
    return Group(*parts, *_stacks(part.stacks, with_stacks=with_stacks))


def is_told(part: TriagePart) -> bool:
    """Return whether there is something to show beside the answer."""
    return bool(part.findings or part.stacks or part.second)


def headline_of(part: TriagePart) -> str:
    """Return the kind of failure in one line."""
    if part.category is None:
        return "Triage: nothing was seen"
    stage = f", stage: {part.stage.replace('_', ' ')}" if part.stage else ""
    return f"Triage: {part.category.replace('_', ' ')} - {shorten(part.symptom or 'no single symptom', 120)}{stage}"


def _finding(number: int, finding: Finding) -> Iterator[Text]:
    name = f"{number}. {finding.symptom} ({finding.category.value.replace('_', ' ')}; {say_place(finding)})"
    yield Text(name, style="bold")
    yield Text(f"   {finding.summary}")
    for item in finding.evidence:
        yield Text(f"   - {say_evidence(item)}")
    if finding.look_at:
        yield Text(f"   look first at: {finding.look_at}")


def say_second(second: SecondLook) -> tuple[str, ...]:
    """Return what a closer look said, in sentences."""
    head = SECOND_WORDS[second.kind]
    if second.reason:
        return (f"{head}, was not made: {second.reason}",)
    if not second.said:
        return (f"{head}, said nothing more",)
    return tuple(f"{head}: {second.said[0]}" if idx == 0 else text for idx, text in enumerate(second.said))


def _second(second: SecondLook | None) -> list[RenderableType]:
    return [Text(""), *(Text(f"  {text}") for text in say_second(second))] if second else []


def _ranks(part: TriagePart, run: str, baseline: str) -> list[RenderableType]:
    if not part.ranks:
        return []
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold", show_edge=False)
    sides = [(run, part.ranks), *([(baseline, part.baseline_ranks)] if part.baseline_ranks else [])]
    has_side, has_samples = len(sides) > 1, any(row.num_samples is not None for _, rows in sides for row in rows)
    for name in (*(("of",) if has_side else ()), "rank", "steps", "loss", "gradient norm", "learning rates", "parameters"):
        table.add_column(name, no_wrap=name in ("rank", "steps"))
    for name in (*(("samples",) if has_samples else ()), "end"):
        table.add_column(name, overflow="fold")
    for name, rows in sides:
        for row in rows:
            table.add_row(*([Text(name)] if has_side else []), *map(Text, _cells(row, has_samples=has_samples)))
    return [Text(""), Padding(table, (0, 0, 0, 2), expand=False)]


def _cells(row: RankRow, *, has_samples: bool) -> list[str]:
    losses = "-" if row.first_loss is None else f"{say_number(row.first_loss)} -> {say_number(row.last_loss)}"
    rates = ", ".join(say_number(value) for value in row.lr[:3]) + (", ..." if len(row.lr) > 3 else "")
    cells = [str(row.rank), str(row.steps), losses, say_number(row.grad_norm), rates or "-", row.param_hash[-8:] or "-"]
    return [*cells, *([say_samples(row)] if has_samples else []), row.ending]


def say_samples(row: RankRow) -> str:
    """Return how many of a rank's samples are different: `48 of 64 differ`."""
    return "-" if row.num_samples is None else f"{row.num_distinct} of {row.num_samples} distinct"


def _samples(pairs: Sequence[SamplePair], run: str, baseline: str) -> list[RenderableType]:
    if not pairs:
        return []
    lines: list[RenderableType] = [Text(""), Text("  The data differ; the first values of the first row:")]
    for pair in pairs:
        for name, values in ((baseline, pair.baseline), (run, pair.run)):
            shown = " ".join(values[:NUM_VALUES]) + (" ..." if len(values) > NUM_VALUES else "")
            lines.append(Text(f"  rank {pair.rank}, step {pair.step}, {name}: {shown}"))
    return lines


def _stacks(stacks: Sequence[StackPart], *, with_stacks: bool) -> list[RenderableType]:
    if not stacks:
        return []
    lines: list[RenderableType] = [Text(""), Text("  Which rank waits where:")]
    for part in stacks:
        lines.append(Text(f"  {name_of_process(part)}: {part.waits_at or 'unknown'}"))
    if with_stacks:
        lines += [Text(f"\n--- stack of {name_of_process(part)}\n{part.text.rstrip()}") for part in stacks]
    return lines


def name_of_process(part: StackPart) -> str:
    """Return `rank 0`, or the name of what was dumped where it tells no rank."""
    return part.name if part.rank is None else f"rank {part.rank}"
