"""Tells people of a bisection's answer, once a place: what was told where is kept as events of the bisection."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bisect_train.cli.desk import Desk
from bisect_train.cli.terminal import SafeConsole
from bisect_train.coordinator.event_log import read_events
from bisect_train.core.changes import digest_of
from bisect_train.core.errors import BisectTrainError, InputError, NotDelivered
from bisect_train.nightly.finding import Finding, FindingKind, FindingState, FoundChange
from bisect_train.report import ChangePart, ReportData, report_to_json
from bisect_train.telling import Messenger, Receipt, compose, is_to_be_told, open_messenger

TOLD = "told"
NUM_BISECTIONS = 200  # looked through for earlier messages of a name
_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
RUN_PAGES = ("BUILD_URL", "CI_JOB_URL")
"""Variables in which Jenkins and GitLab say where a run's page is."""


@dataclass(frozen=True, slots=True)
class Telling:
    """Whom to tell, and how.

    Attributes:
        addresses: as they were written.
        name: of the message, where it is to be the same over several bisections; "" for one of this bisection.
        with_candidates: tell what is not confirmed too.
        mention_authors: call the authors of proved culprits by name.
    """

    addresses: tuple[str, ...]
    name: str = ""
    with_candidates: bool = False
    mention_authors: bool = False

    def __post_init__(self) -> None:
        if self.name and not _NAME.fullmatch(self.name):
            hint = "it takes up to 64 letters, digits and dashes, such as pull-request-12"
            raise InputError(f"not a name for a message: {self.name[:80]!r}", hint=hint)


def tell_answer(desk: Desk, report: ReportData, addresses: tuple[str, ...]) -> None:
    """Tell the places of `--tell`; what goes wrong is said, and changes nothing about the answer."""
    if not addresses:
        return
    console = SafeConsole(stderr=True, highlight=False)
    for text in tell_report(desk, report, Telling(addresses)).lines:
        console.print(text, markup=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Told:
    """What became of it: a line a place, and whether every place that was to be told was."""

    lines: tuple[str, ...]
    is_complete: bool = True


def tell_report(desk: Desk, report: ReportData, telling: Telling) -> Told:
    """Tell each place of an answer, and note it; a place that has this very message is not told again."""
    created_s = desk.store.load(report.id).created_s
    finding = finding_of(report, name=telling.name, created_s=created_s, links=_links_of_run(os.environ))
    is_closing = finding.state is FindingState.CLOSED
    if not is_closing and not is_to_be_told(finding, with_candidates=telling.with_candidates):
        status = report.status.replace("_", " ")
        return Told((f"nobody is told: {status} is not confirmed (--candidates tells it all the same)",))
    lines, is_complete = [], True
    for address in telling.addresses:
        messenger = open_messenger(address, environ=os.environ)
        try:
            lines.append(f"{messenger.name}: {_tell_place(desk, finding, messenger, address, telling)}")
        except NotDelivered as error:
            lines.append(f"not told: {error.message}; `bisect-train tell {report.id} --to ...` tries again")
            is_complete = False
    return Told(tuple(lines), is_complete)


def _tell_place(desk: Desk, finding: Finding, messenger: Messenger, address: str, telling: Telling) -> str:
    """Tell one place; return what became of it."""
    bisection, content = finding.bisection, _content_of(finding)
    known = _told_before(desk, finding, is_of_several=bool(telling.name))
    place = digest_of(address)  # an address may be a secret, and everybody who sees the bisection sees its events
    here = [data for data in known if data["place"] == place]
    if here and here[-1]["content"] == content:
        return "has this message already"
    finding = replace(finding, revision=_revision_of(known, content, default=finding.revision))
    if here and finding.state is FindingState.OPEN:
        finding = replace(finding, state=FindingState.UPDATED)
    earlier = Receipt.of_json(here[-1]["receipt"]) if here else None
    receipt = messenger.send(compose(finding, mention_authors=telling.mention_authors), earlier=earlier)
    if not receipt.is_told:
        return f"{receipt.how}, {receipt.reason}"
    told = {"place": place, "name": messenger.name, "finding": finding.id, "revision": finding.revision, "content": content}
    with desk.store.lock(bisection):
        desk.store.append(bisection, TOLD, {**told, "key": finding.key, "receipt": receipt.to_json()})
    return f"{receipt.how} {receipt.place}".rstrip()


def _revision_of(known: Sequence[dict[str, Any]], content: str, *, default: int) -> int:
    """Return the newest telling's revision where it said the same, else a larger one.

    What comes back after something else was told is new: a receiver drops a key that it has.
    """
    if not known:
        return default
    newest = max(known, key=lambda data: int(data["revision"]))
    return int(newest["revision"]) + (0 if newest["content"] == content else 1)


def _told_before(desk: Desk, finding: Finding, *, is_of_several: bool) -> list[dict[str, Any]]:
    """Return what was told of a finding so far, the oldest first; where it is of several bisections, by the newest of them."""
    names = [item.id for item in reversed(desk.store.list()[:NUM_BISECTIONS])] if is_of_several else [finding.bisection]
    events = [event for name in names for event in read_events(desk.store, name, kinds=(TOLD,))]
    told = [event.data for event in sorted(events, key=lambda event: event.time_s)]
    return [data for data in told if data["finding"] == finding.id]


def _content_of(finding: Finding) -> str:
    """Return a digest of what a message says, whenever and however often it is told."""
    said = [finding.summary, list(finding.details), [item.id for item in finding.culprits], finding.is_confirmed]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


# ---- a report as a finding ----------------------------------------------------------------------------------------


def finding_of(report: ReportData, *, name: str = "", created_s: float = 0.0, links: Sequence[tuple[str, str]] = ()) -> Finding:
    """Return the finding of a bisection that was asked by a person or a workflow, not by a night.

    Args:
        report: its answer.
        name: of the message; "" for one of this bisection.
        created_s: when it was asked, seconds since the epoch; a later bisection's message has a larger revision.
        links: (words, address) pairs.
    """
    is_over = report.status == "no_regression"
    culprits = tuple(_changed(part) for culprit in report.culprits for part in culprit.changes)
    return Finding(
        id=name or f"bisection-{report.id}",
        revision=max(1, int(created_s)),
        state=FindingState.CLOSED if is_over else FindingState.OPEN,
        kind=FindingKind.REGRESSION,
        watch="",
        repo="",
        branch="",
        title=f"{report.headline}: {_names_of(culprits) or report.title}",
        summary=report.summary,
        good=report.ends[0].revision,
        bad=report.ends[1].revision,
        opened_s=created_s,
        changed_s=created_s,
        details=report.explanation,
        culprits=culprits,
        candidates=tuple(_changed(item.change) for item in report.candidates),
        is_confirmed=report.status in ("isolated", "several"),
        bisection=report.id,
        report=report_to_json(report),
        links=tuple(links),
    )


def _names_of(culprits: Sequence[FoundChange]) -> str:
    names = [f"{item.kind} {item.id[:8] if item.kind == 'commit' else item.id}" for item in culprits[:3]]
    return ", ".join([*names, *(["..."] if len(culprits) > 3 else [])])


def _changed(part: ChangePart) -> FoundChange:
    author = part.detail.rpartition(", ")[0] if part.kind == "commit" else ""
    return FoundChange(part.kind, part.id, part.title, author)


def _links_of_run(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return where the run that tells can be looked at, if it is one of a workflow."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    if all(environ.get(name) for name in names):
        server, repository, run = (environ[name] for name in names)
        return [("the run", f"{server}/{repository}/actions/runs/{run}")]
    return [("the run", environ[name]) for name in RUN_PAGES if environ.get(name)]


def raise_unless(told: Told) -> None:
    """Raise where a place was not told."""
    if not told.is_complete:
        raise BisectTrainError("not every place was told, see above", hint="nothing is lost: run the same command again")
