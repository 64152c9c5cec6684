"""From a finding to its message, and whether it is one that people are to be told of. Pure: nothing is looked up or sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bisect_train.core.secrets import mask_logins
from bisect_train.report.markdown import name_part, render_stored_markdown
from bisect_train.report.markdown_text import bullets, fit, plain, tame
from bisect_train.telling.message import Author, FoundChange, Message, Tellable

SCHEMA = 1
MARKDOWN_LIMIT = 60_000  # leaves room for the marker and the call to the authors below GitHub's 65,536
TITLE_LIMIT = 160  # taming makes a text half as long again at most, and GitHub takes 256 characters
NUM_DETAILS, NUM_CHANGES = 12, 10
STATE_WORDS = {"open": "", "updated": "", "closed": "Over: ", "intended": "Intended: "}
BLAMELESS = ("drift", "untestable")
HARMLESS = ("better", "numerics_only", "data_order")
"""Kinds of change of report.json that are no worsening."""
_BULKY = ("probes",)
_BULKY_TRIAGE = ("curves", "stacks", "samples", "ranks", "baseline_ranks")
_TRUSTED_SCHEMES = ("https://", "http://")


def is_to_be_told(finding: Tellable, *, with_candidates: bool = False) -> bool:
    """Return whether people are told: what is confirmed, and what blames nobody; the rest only where that was asked for.

    Args:
        finding: what was found.
        with_candidates: tell of regressions that are not narrowed down, too.
    """
    return with_candidates or finding.is_confirmed or finding.kind.value in BLAMELESS


def compose(finding: Tellable, *, mention_authors: bool = False) -> Message:
    """Return the message of a finding.

    Args:
        finding: what was found.
        mention_authors: whether the authors of blamed commits are called by name; only proved culprits ever are.
    """
    state = str(finding.state.value)
    authors = _authors(finding.culprits) if mention_authors and finding.is_confirmed else ()
    return Message(
        finding=finding.id,
        key=finding.key,
        state=state,
        title=tame(STATE_WORDS.get(state, "") + finding.title, limit=TITLE_LIMIT),
        text=_text(finding, authors),
        markdown=_markdown(finding),
        conclusion=_conclusion(finding),
        commit=finding.bad,
        authors=authors,
        data=_data(finding, mention_authors=mention_authors),
    )


def _conclusion(finding: Tellable) -> str:
    """Return what a check-run ends with: a bad commit stays bad when a later one has mended it."""
    if finding.state.value == "closed":
        return "neutral" if finding.fixed_by else "success"
    is_harmless = (finding.report or {}).get("kind_of_change") in HARMLESS
    is_blamed = finding.is_confirmed and finding.state.value != "intended" and not is_harmless
    return "failure" if is_blamed else "neutral"


def _authors(culprits: Sequence[FoundChange]) -> tuple[Author, ...]:
    commits = {item.id: Author(item.id, item.author, item.email) for item in culprits if item.kind == "commit"}
    return tuple(commits.values())


# ---- plain text ---------------------------------------------------------------------------------------------------


def _text(finding: Tellable, authors: Sequence[Author]) -> str:
    lines = [finding.summary, _say_end(finding), *finding.details[:NUM_DETAILS]]
    lines += [f"- {_name(item)}" for item in finding.culprits[:NUM_CHANGES]]
    if finding.candidates and not finding.culprits:
        lines += ["Nothing is proved; what could be the one:"]
        lines += [f"- {_name(item)}" for item in finding.candidates[:NUM_CHANGES]]
    lines += [f"Author of {item.commit[:8]}: {item.name}" for item in authors if item.name]
    tamed = [tame(line) for line in lines if line]
    tamed += [f"{tame(words)}: {address}" for words, address in _safe_links(finding)]
    return "\n".join([*tamed, *([f"bisect-train report {finding.bisection}"] if finding.bisection else [])])


def _name(item: FoundChange) -> str:
    shown = item.id[:8] if item.kind == "commit" else item.id
    title = item.title.removeprefix(f"{item.id}:").strip()
    return f"{item.kind} {shown} {title}".rstrip() if title != item.id else f"{item.kind} {shown}"


def _say_end(finding: Tellable) -> str:
    state = finding.state.value
    if state == "closed":
        return f"It is over since {finding.fixed_by[:8]}." if finding.fixed_by else "It is over."
    return "It is an intended change." if state == "intended" else ""


def _safe_links(finding: Tellable) -> Iterator[tuple[str, str]]:
    """Yield links whose address is one: http, no spaces, nothing that ends a link in Markdown."""
    for words, address in finding.links:
        if address.startswith(_TRUSTED_SCHEMES) and address.isprintable() and not set(address) & set(" <>()[]\"'`\\\n"):
            yield words, mask_logins(address)


# ---- Markdown -----------------------------------------------------------------------------------------------------


def _markdown(finding: Tellable) -> str:
    headline = STATE_WORDS.get(str(finding.state.value), "") + finding.title
    links = " · ".join(f"[{plain(words, limit=80)}]({address})" for words, address in _safe_links(finding))
    details = finding.details[:NUM_DETAILS]
    if finding.report is not None:
        said = plain(finding.summary) if finding.summary != finding.report.get("summary") else ""
        lead = [plain(_say_end(finding)), said, links]
        return render_stored_markdown(finding.report, headline=headline, lead=lead, explanation=details, limit=MARKDOWN_LIMIT)
    blocks = [f"## {plain(headline, limit=200)}", plain(_say_end(finding)), plain(finding.summary), links]
    blocks += [plain(text) for text in details]
    blocks += [_changes("Found:", finding.culprits)]
    blocks += [_changes("Nothing is proved; what could be the one:", finding.candidates)] if not finding.culprits else []
    return fit(blocks, "*by bisect-train*", limit=MARKDOWN_LIMIT)


def _changes(title: str, items: Sequence[FoundChange]) -> str:
    named = [name_part({"kind": item.kind, "id": item.id, "title": item.title}) for item in items[:NUM_CHANGES]]
    return f"{title}\n\n{bullets(named)}" if named else ""


# ---- JSON ---------------------------------------------------------------------------------------------------------


def _data(finding: Tellable, *, mention_authors: bool) -> dict[str, Any]:
    """Return what a webhook gets: the finding with `schema`, without who made a commit unless that was asked for."""
    data = {"schema": SCHEMA, "event": "finding", **finding.to_json()}
    hidden = () if mention_authors else ("author", "email")
    for name in ("culprits", "candidates"):
        data[name] = [{key: value for key, value in item.items() if key not in hidden} for item in data.get(name, ())]
    data["repo"] = mask_logins(str(data.get("repo", "")))
    data["report"] = _slim(finding.report) if finding.report is not None else None
    return data


def _slim(report: dict[str, Any]) -> dict[str, Any]:
    """Return report.json without its long lists."""
    kept = {key: value for key, value in report.items() if key not in _BULKY}
    triage = report.get("triage") or {}
    return {**kept, "triage": {key: value for key, value in triage.items() if key not in _BULKY_TRIAGE}}
