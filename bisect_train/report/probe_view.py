"""One probe for a person: how it ended, what was recorded step by step, events, stacks, output."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bisect_train.coordinator.trust import JUDGE_NOT_STARTED
from bisect_train.core.fingerprint import Ending, RankRecord, StepRecord
from bisect_train.core.secrets import mask_text
from bisect_train.report.failing import last_lines
from bisect_train.store.contract import StoredProbe
from bisect_train.verdict.outcome import JUDGE_UNTESTABLE

QUIET_EVENTS = ("imports", "exit", "stop", "numpy_imported", "torch_imported", "batch", "collective", "outside_files")
QUIET_DATA = ("traceback", "values")
MAX_STEPS = 60


def render_probe(probe: StoredProbe, *, rank: int = 0, with_log: bool = False, with_stacks: bool = True) -> RenderableType:
    """Return everything about a probe that a person may want to see.

    Args:
        probe: stored one.
        rank: whose steps are shown.
        with_log: whether the program's output is shown too; it always is when the program failed.
        with_stacks: whether dumped stacks are shown.
    """
    fingerprint = probe.result.fingerprint
    parts: list[RenderableType] = [Text(line) for line in _head_of(probe)]
    chosen = next((record for record in fingerprint.ranks if record.rank == rank), None)
    if chosen is not None:
        parts += [Text(f"\nrank {rank} of {len(fingerprint.ranks)}:"), _step_table(chosen), *_events_of(chosen)]
    elif fingerprint.ranks:
        parts.append(Text(f"\nthere is no rank {rank}; ranks: {', '.join(str(record.rank) for record in fingerprint.ranks)}"))
    for series in fingerprint.metrics:
        shown = ", ".join(f"{value:.6g}" for value in series.values[:20])
        parts.append(Text(f"{series.name} from the log: {shown or 'never seen'}"))
    parts += [Text(f"\n--- stack {name}\n{mask_text(text)}") for name, text in probe.result.stacks if with_stacks]
    parts += _judge_of(probe)
    if with_log or not fingerprint.ending.is_healthy:
        tail = probe.result.log_tail if with_log else probe.result.log_tail[-3000:]
        parts.append(Text(f"\n--- output (its end)\n{mask_text(tail)}"))
    return Group(*parts)


def _head_of(probe: StoredProbe) -> list[str]:
    spec, fingerprint = probe.spec, probe.result.fingerprint
    lines = [
        f"probe     {probe.key}   (bisection {probe.bisection_id})",
        f"variant   {spec.get('variant', '?')}  commit {str(spec.get('commit', '?'))[:12]}  changes {spec.get('point', '?')}",
        f"run       {spec.get('rung', '?')}, seed {spec.get('seed_idx', '?')}",
        f"where     {probe.result.node}, {probe.result.wall_s:.1f} s",
        *([f"kept      {probe.result.kept} on {probe.result.node}"] if probe.result.kept else []),
        f"ended     {say_ending(fingerprint.ending)}",
        *(f"{name:<9} {value}" for name, value in fingerprint.facts),
    ]
    if fingerprint.judge is not None:
        lines.append(f"judge     exit status {fingerprint.judge.exit_status} ({_say_judged(fingerprint.judge.exit_status)})")
    return lines + [f"warning   {text}" for text in probe.result.warnings]


def _say_judged(status: int) -> str:
    if status == 0:
        return "good"
    if status in JUDGE_NOT_STARTED:
        return "could not be started"
    return (
        "untestable" if status == JUDGE_UNTESTABLE else "bad" if status < JUDGE_UNTESTABLE else "killed, or hit its time limit"
    )


def _judge_of(probe: StoredProbe) -> list[RenderableType]:
    """Return the last lines that the judging command printed; a silent one has none."""
    judge = probe.result.fingerprint.judge
    tail = last_lines(judge.output) if judge is not None else ""
    return [Text(f"\n--- output of the judging command (its end)\n{tail}")] if tail else []


def say_ending(ending: Ending) -> str:
    """Return how a program ended, in words."""
    words = {
        "stopped": "stopped after its last step, as asked",
        "finished": "finished by itself",
        "crashed": "crashed",
        "out_of_memory": "ran out of memory",
        "timeout": "hit its time limit",
        "killed": f"killed by signal {ending.signal}",
        "cannot_start": "could not be started",
        "no_recorder": "ran without the recorder",
    }
    text = words[ending.kind.value]
    if ending.exit_status not in (None, 0):
        text += f" (exit status {ending.exit_status})"
    return f"{text}: {mask_text(ending.message)}" if ending.message else text


def _step_table(record: RankRecord) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("step", "loss", "grad norm", "before clip", "lr", "param norm", "params", "batch", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for step in record.steps[:MAX_STEPS]:
        table.add_row(*_row_of(step))
    if len(record.steps) > MAX_STEPS:
        table.add_row("...", f"{len(record.steps) - MAX_STEPS} more")
    return table


def _row_of(step: StepRecord) -> tuple[str, ...]:
    def number(value: float | None, form: str = ".6f") -> str:
        return "" if value is None else format(value, form)

    lr = number(step.lr[0], ".3g") if step.lr else ""
    hashes = ((step.param_hash or "")[-8:], (step.batch_hash or "")[-8:])  # a sum of bits begins with zeros
    norms = (number(step.loss), number(step.grad_norm, ".5g"), number(step.clip_norm, ".5g"))
    skipped = " skipped" if step.skipped else ""
    return (f"{step.step}{skipped}", *norms, lr, number(step.param_norm, ".5f"), *hashes, number(step.step_s, ".3f"))


def _events_of(record: RankRecord) -> list[Text]:
    lines = []
    for event in record.events:
        if event.name not in QUIET_EVENTS:
            details = ", ".join(f"{key}={str(value)[:120]}" for key, value in event.data.items() if key not in QUIET_DATA)
            lines.append(Text(f"event     step {event.step}: {event.name} {details}"))
    return lines[:40]
