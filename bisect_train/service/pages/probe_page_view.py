"""What the page of one probe shows, and the page that lays two of them over one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bisect_train.core.fingerprint import Event, Fingerprint, RankRecord, StepRecord
from bisect_train.core.secrets import mask_line
from bisect_train.report.compare import EQUAL_WORDS, say_first_difference
from bisect_train.report.probe_view import QUIET_DATA, QUIET_EVENTS, say_ending
from bisect_train.report.rank_divergence import divergences_by_rank
from bisect_train.report.triage_parts import RankRow
from bisect_train.report.triage_view import rank_rows
from bisect_train.report.words import SIGNAL_WORDS, STAGE_WORDS, say_number
from bisect_train.service.pages.figures import Figure, figure_of_pair, figures_of_run
from bisect_train.store.contract import StoredProbe
from bisect_train.verdict.divergence import StepRow, first_divergence, norm_before_clipping, step_rows

MAX_STEPS = 100  # rows of a table; the curves show all
MAX_EVENTS = 40
MAX_LOG = 16_000


@dataclass(frozen=True, slots=True)
class ProbePage:
    """One probe.

    Attributes:
        key: identity.
        ending: how it ended, in a sentence; `is_healthy` whether as it should.
        facts: name and value of what is known of the run: where, how long, versions.
        figures: curves of its ranks.
        ranks: one row a rank.
        steps: of rank 0, as text: step, loss, gradient norm, learning rate, parameters, batch, seconds.
        num_steps_left_out: that the table does not show.
        events: what happened, in lines.
        stacks: name and text.
        log: the end of its output.
        judge: the end of the judging command's output, or "".
        warnings: of the run.
    """

    key: str
    ending: str
    is_healthy: bool
    facts: tuple[tuple[str, str], ...]
    figures: tuple[Figure, ...]
    ranks: tuple[RankRow, ...]
    steps: tuple[tuple[str, ...], ...]
    num_steps_left_out: int
    events: tuple[str, ...]
    stacks: tuple[tuple[str, str], ...]
    log: str
    judge: str
    warnings: tuple[str, ...]


def make_probe_page(probe: StoredProbe) -> ProbePage:
    """Return what is shown of a stored probe; lines that hold a secret hide it."""
    result, fingerprint = probe.result, probe.result.fingerprint
    first = fingerprint.ranks[0].steps if fingerprint.ranks else ()
    return ProbePage(
        key=probe.key,
        ending=say_ending(fingerprint.ending),
        is_healthy=fingerprint.ending.is_healthy,
        facts=_list_facts(probe),
        figures=figures_of_run(fingerprint),
        ranks=rank_rows(fingerprint),
        steps=tuple(_step(step) for step in first[:MAX_STEPS]),
        num_steps_left_out=max(0, len(first) - MAX_STEPS),
        events=tuple(_say_event(record, event) for record in fingerprint.ranks for event in _told(record))[:MAX_EVENTS],
        stacks=result.stacks,
        log=hide_secrets(result.log_tail[-MAX_LOG:]),
        judge=hide_secrets(fingerprint.judge.output[-MAX_LOG:]) if fingerprint.judge else "",
        warnings=result.warnings,
    )


def hide_secrets(text: str) -> str:
    """Return a log whose lines do not show what they call a secret."""
    return "\n".join(mask_line(line) for line in text.split("\n"))


def _list_facts(probe: StoredProbe) -> tuple[tuple[str, str], ...]:
    spec: Mapping[str, Any] = probe.spec
    result, fingerprint = probe.result, probe.result.fingerprint
    last = fingerprint.ranks[0].steps[-1] if fingerprint.ranks and fingerprint.ranks[0].steps else None
    hashes = [step.param_hash for step in (fingerprint.ranks[0].steps if fingerprint.ranks else ()) if step.param_hash]
    known = [
        ("Commit", str(spec.get("commit", ""))),
        ("Rung", str(spec.get("rung", ""))),
        ("Seed index", str(spec.get("seed_idx", ""))),
        ("Where", f"{result.node}, {result.wall_s:.1f} s" if result.node else f"{result.wall_s:.1f} s"),
        ("Hardware", str(spec.get("hardware_class") or "")),
        ("Steps", f"{fingerprint.num_steps} on {len(fingerprint.ranks)} rank(s)"),
        ("Last loss", say_number(last.loss) if last is not None and last.loss is not None else ""),
        ("First batch", (fingerprint.ranks[0].steps[0].batch_hash or "")[:12] if last is not None else ""),
        ("Last parameters", hashes[-1][:12] if hashes else ""),
        ("Number formats", ", ".join(last.dtypes) if last is not None else ""),
        ("Judge", f"exit status {fingerprint.judge.exit_status}" if fingerprint.judge else ""),
        *fingerprint.facts,
    ]
    return tuple((name, value) for name, value in known if value)


def _step(step: StepRecord) -> tuple[str, ...]:
    return (
        f"{step.step}{' skipped' if step.skipped else ''}",
        say_number(step.loss),
        say_number(norm_before_clipping(step)),
        say_number(step.lr[0]) if step.lr else "-",
        (step.param_hash or "")[:8] or "-",
        (step.batch_hash or "")[:8] or "-",
        "-" if step.step_s is None else f"{step.step_s:.3f}",
    )


def _told(record: RankRecord) -> list[Event]:
    return [event for event in record.events if event.name not in QUIET_EVENTS]


def _say_event(record: RankRecord, event: Event) -> str:
    details = ", ".join(f"{key}={str(value)[:120]}" for key, value in event.data.items() if key not in QUIET_DATA)
    where = "" if event.step is None else f", step {event.step}"
    return mask_line(f"rank {record.rank}{where}: {event.name.replace('_', ' ')} {details}".rstrip())


@dataclass(frozen=True, slots=True)
class ComparePage:
    """Two probes side by side.

    Attributes:
        said: where they first differ, in a sentence or two.
        figure: their losses over one another, or None.
        by_rank: rank, step, stage, signal, A, B of each rank's first difference; () for a single rank.
        steps: rows of the table, as text; the one where they first differ is `first`.
        num_steps_left_out: that the table does not show.
        first: number of the step at which they first differ, or None.
    """

    said: str
    figure: Figure | None
    by_rank: tuple[tuple[str, ...], ...]
    steps: tuple[tuple[str, ...], ...]
    num_steps_left_out: int
    first: int | None


def make_compare_page(
    left: Fingerprint, right: Fingerprint, *, names: tuple[str, str], is_same_seed: bool = True
) -> ComparePage:
    """Return two runs laid over one another; `names` say what they are."""
    divergence = first_divergence(left, right)
    rows = step_rows(left, right)
    first = divergence.step if divergence is not None else None
    shown = _around(rows, first)
    said = say_first_difference(left, right, left=f"A ({names[0]})", right=f"B ({names[1]})")
    if not is_same_seed:
        said = said.replace("On the same seed, ", "") + " Their seeds differ, so that they would differ anyway."
    return ComparePage(
        said=said,
        figure=figure_of_pair(left, right, names=names),
        by_rank=_by_rank(left, right),
        steps=tuple(_cells(row) for row in shown),
        num_steps_left_out=len(rows) - len(shown),
        first=first,
    )


def _around(rows: tuple[StepRow, ...], first: int | None) -> tuple[StepRow, ...]:
    """Return the rows of a table: the first ones, or those around the first difference where that comes later."""
    if first is None or first < MAX_STEPS:
        return rows[:MAX_STEPS]
    at = next((idx for idx, row in enumerate(rows) if row.step >= first), 0)
    return rows[max(0, at - MAX_STEPS // 2) : at + MAX_STEPS // 2]


def _by_rank(left: Fingerprint, right: Fingerprint) -> tuple[tuple[str, ...], ...]:
    found = divergences_by_rank(left, right)
    if len(found) < 2:
        return ()
    rows = []
    for rank, item in found:
        if item is None:
            rows.append((str(rank), "nowhere", "-", "-", "-", "-"))
            continue
        step = "-" if item.step is None else str(item.step)
        signal = SIGNAL_WORDS.get(item.signal, item.signal)
        rows.append((str(rank), step, STAGE_WORDS[item.stage], signal, item.left.strip("'"), item.right.strip("'")))
    return tuple(rows)


def _cells(row: StepRow) -> tuple[str, ...]:
    # the norm before clipping, where there is clipping: the one after is the limit at most
    norms = [before if before is not None else after for before, after in zip(row.clip_norms, row.grad_norms, strict=True)]
    return (
        str(row.step),
        *(say_number(value) for value in row.losses),
        "0" if row.loss_delta == 0 else say_number(row.loss_delta, signed=True),
        *(say_number(value) for value in norms),
        *(say_number(value) for value in row.lrs),
        EQUAL_WORDS[row.has_equal_params],
        EQUAL_WORDS[row.has_equal_batch],
    )
