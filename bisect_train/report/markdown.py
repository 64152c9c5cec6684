"""The report as Markdown for a pull request or an issue: the verdict first, what is long is folded up.

It is made from report.json, which is what is kept of a bisection, and from the few sentences that only `ReportData` has.
Nothing in it calls a person or an issue by name, whatever a commit's message says (`markdown_text`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bisect_train.report.inside import printable_patch, smallest_patch
from bisect_train.report.markdown_text import LIMIT, bullets, code, code_block, details, fit, plain, table
from bisect_train.report.parts import ClaimPart, ReportData
from bisect_train.report.wire import report_to_json
from bisect_train.report.words import say_count, say_number, say_seconds, say_share, say_spread

NUM_CANDIDATES, NUM_PROBES, NUM_LINES = 10, 40, 12
HEADLINES = {
    "isolated": "Found the culprit",
    "several": "Found several culprits",
    "candidates": "Not narrowed to one change",
    "drift": "Worse bit by bit",
    "budget": "Not narrowed to one change: the budget is spent",
    "no_regression": "No regression",
    "not_reproduced": "Not reproduced",
    "fixed_before": "Fixed before",
    "failed": "No answer: the ends could not be compared",
}


def render_markdown(report: ReportData, *, limit: int = LIMIT) -> str:
    """Return the report of a bisection.

    Args:
        limit: characters at most; parts at the end are left out for it.
    """
    data = report_to_json(report)
    more = (
        _folded("The proof, by fresh runs", _claims(report.claims, report.metric.unit)),
        _folded("First difference", plain(report.divergence_text)),
        _folded("The smallest patch that does it", _block(printable_patch(smallest_patch(report)), "diff")),
        _folded("What was compared", _paragraphs(report.ends_story)),
        _folded("Last lines of its output", _block(report.log_tail, "text")),
    )
    return _assemble(data, headline=report.headline, explanation=report.explanation, more=more, limit=limit)


def render_stored_markdown(
    data: Mapping[str, Any],
    *,
    headline: str = "",
    lead: Sequence[str] = (),
    explanation: Sequence[str] = (),
    limit: int = LIMIT,
) -> str:
    """Return the report that report.json holds.

    Args:
        data: of report.json.
        headline: in place of the one of its status.
        lead: blocks of Markdown that stand before its summary.
        explanation: sentences that stand behind it.
        limit: characters at most; parts at the end are left out for it.
    """
    named = headline or HEADLINES.get(data.get("status", ""), "Answer")
    return _assemble(data, headline=named, lead=lead, explanation=explanation, limit=limit)


def _assemble(
    data: Mapping[str, Any],
    *,
    headline: str,
    explanation: Sequence[str],
    limit: int,
    lead: Sequence[str] = (),
    more: Sequence[str] = (),
) -> str:
    parts = [
        f"## {plain(headline, limit=200)}",
        *lead,
        plain(data.get("summary") or ""),
        _effects(data.get("culprits") or ()),
        _paragraphs(explanation),
        _candidates(data.get("candidates") or ()),
        *_conditions(data.get("culprits") or ()),
        _warnings(data.get("warnings") or ()),
        *_triage(data.get("triage") or {}),
        _folded("How to reproduce it by hand", _block("\n".join(data.get("reproduce") or ()), "sh")),
        *more,
        _folded("What the probe covers and cannot see", _coverage(data.get("probe") or {})),
        _folded(say_count(len(data.get("probes") or ()), "probe").capitalize(), _probes(data)),
    ]
    return fit(parts, _footer(data), limit=limit)


def _folded(title: str, body: str) -> str:
    return details(title, body) if body else ""


def _block(text: str, language: str) -> str:
    return code_block(text, language=language) if text.strip() else ""


def _paragraphs(sentences: Sequence[str]) -> str:
    return "\n\n".join(plain(text) for text in sentences[:NUM_LINES])


def name_part(part: Mapping[str, Any]) -> str:
    """Return a change of report.json in Markdown: kind, id, title."""
    kind, name, title = str(part.get("kind", "")), str(part.get("id", "")), str(part.get("title", ""))
    shown = name[:8] if kind == "commit" else name
    text = f"{plain(kind)} {code(shown)}"
    return text if title in ("", name) else f"{text} {plain(title.removeprefix(f'{name}:').strip(), limit=120)}"


def _effects(culprits: Sequence[Mapping[str, Any]]) -> str:
    rows = [_effect_row(item) for item in culprits[:NUM_CANDIDATES] if (item.get("effect") or {}).get("good") is not None]
    if not rows:
        return ""
    columns = ("change", "of", "before it", "with it", "difference", "share of the gap")
    return table(columns, rows, numbers=(2, 3, 4, 5))


def _effect_row(culprit: Mapping[str, Any]) -> tuple[str, ...]:
    effect, unit = culprit["effect"], culprit["effect"]["unit"] or ""
    sides = (say_spread(effect[side], effect[f"{side}_sd"], effect[f"num_{side}"], unit=unit) for side in ("good", "bad"))
    share = "-" if effect["share"] is None else say_share(effect["share"])
    if effect["share_low"] is not None and effect["share_high"] not in (None, effect["share_low"]):
        share += f" ({100 * effect['share_low']:.0f} to {100 * effect['share_high']:.0f} %)"
    jump = say_number(effect["bad"] - effect["good"], unit=unit, signed=True)
    changes = " and ".join(name_part(part) for part in culprit["changes"])
    return (changes, plain(effect["metric"]), *(plain(text) for text in (*sides, jump, share)))


def _candidates(candidates: Sequence[Mapping[str, Any]]) -> str:
    if not candidates:
        return ""
    rows = [(name_part(item), plain(say_share(item["probability"]))) for item in candidates[:NUM_CANDIDATES]]
    left = len(candidates) - NUM_CANDIDATES
    more = f"\n\nand {left} more in report.json" if left > 0 else ""
    return "Nothing is proved; what could be the one:\n\n" + table(("change", "probability"), rows, numbers=(1,)) + more


def _conditions(culprits: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    inside = [part for item in culprits for part in item.get("inside") or ()]
    if inside:
        more = [f"and {len(inside) - NUM_LINES} more"] if len(inside) > NUM_LINES else []
        yield "Inside it, or touched by it:\n\n" + bullets([*map(name_part, inside[:NUM_LINES]), *more])
    notes = [text for item in culprits for text in item.get("conditions") or ()]
    if notes:
        yield "It holds only so far:\n\n" + bullets([plain(text) for text in notes[:NUM_LINES]])


def _warnings(warnings: Sequence[str]) -> str:
    return "**Warnings**\n\n" + bullets([plain(text) for text in warnings[:NUM_LINES]]) if warnings else ""


def _triage(triage: Mapping[str, Any]) -> Iterator[str]:
    if not triage.get("category"):
        return
    words = (str(triage.get(name) or "").replace("_", " ") for name in ("category", "symptom", "stage"))
    category, symptom, stage = (plain(text) for text in words)
    where = f", stage: {stage}" if stage else ""
    yield f"**What it did to the run:** {category}{f' - {symptom}' if symptom else ''}{where}"
    if triage.get("look_first"):
        yield "Look first at:\n\n" + bullets([plain(text) for text in triage["look_first"][:NUM_LINES]])
    yield _folded("Evidence", bullets([plain(text, limit=400) for text in (triage.get("evidence") or ())[:NUM_LINES]]))


def _claims(claims: Sequence[ClaimPart], unit: str) -> str:
    rows = []
    for claim in claims:
        reason = f" ({claim.reason})" if claim.reason and claim.status in ("did not hold", "could not be run") else ""
        jump = say_number(claim.jump, unit=unit, signed=True)
        runs = f"{claim.num_healthy} + {claim.num_sick}"
        rows.append(tuple(plain(text) for text in (claim.text, claim.status + reason, claim.how, runs, jump)))
    return table(("claim", "result", "by", "runs", "difference"), rows, numbers=(3, 4)) if rows else ""


def _coverage(probe: Mapping[str, Any]) -> str:
    lines = [f"covers: {text}" for text in probe.get("covers") or ()]
    lines += [f"cannot see: {text}" for text in probe.get("cannot_see") or ()]
    lines += [f"tried before: {text}" for text in probe.get("tried") or ()]
    return bullets([plain(text, limit=400) for text in lines[: 3 * NUM_LINES]])


def _probes(data: Mapping[str, Any]) -> str:
    probes = (data.get("probes") or ())[-NUM_PROBES:]
    rows = []
    for row in probes:
        seed = f"{row['seed']}" + (f" again {row['repeat']}" if row["repeat"] else "")
        value = say_number(row["value"]) if row["value"] is not None else row["ending"]
        cells = (row["what"], row["purpose"], seed, value, row["verdict"], say_seconds(row["wall_s"]))
        rows.append(tuple(plain(text, limit=120) for text in cells))
    return table(("probe", "for", "seed", "value", "verdict", "time"), rows, numbers=(2, 3, 5)) if rows else ""


def _footer(data: Mapping[str, Any]) -> str:
    return f"*{plain(_say_cost(data.get('cost') or {}))}; bisection {code(str(data.get('id', '')), limit=40)}, by bisect-train*"


def _say_cost(cost: Mapping[str, Any]) -> str:
    run = f"{say_count(cost.get('probes', 0), 'probe')} run, {cost.get('cached', 0)} reused"
    gpu = f", {say_seconds(cost['gpu_s'])} of GPU time" if cost.get("gpu_s") else ""
    early = f", {say_count(cost['early'], 'probe')} stopped early" if cost.get("early") else ""
    pruned = f", {say_count(cost['pruned'], 'change')} needed no run" if cost.get("pruned") else ""
    steps = say_count(cost.get("steps", 0), "training step")
    return f"{run}, {steps}, {say_seconds(cost.get('wall_s') or 0.0)}{gpu}{early}{pruned}"
