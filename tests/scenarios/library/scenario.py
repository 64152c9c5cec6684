"""What a scenario is, and what a report must say about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bisect_train.demo.history.steps import Merge, Step
from tests.scenarios.library.program import COMMAND, PROGRAM
from tests.scenarios.library.repository import build_repository

Commit = Step | Merge
COMMON_OPTIONS = ("--steps", "24")
PIECES = ("hunk", "config")


@dataclass(frozen=True)
class Truth:
    """What a report must say.

    Attributes:
        status: of report.json, or all that are right.
        exit_status: of the command, or all that are right.
        culprits: the only ones that may be named, the largest effect first; each a commit, or commit and config key of a pair.
        inside: commits of a merged branch that must be named inside the first culprit.
        pieces: hunks and config keys of a commit that must be named inside the first culprit, by the ids of report.json.
        kind_of_change: of report.json; None is not looked at.
        stretch: the only commits that may be candidates; () is not looked at.
        hidden: culprits that must be among the candidates.
        island: an earlier bad stretch, which must be told: its first commit, and the one that ends it.
        unread: a config key, and the commit from which on nothing reads it; a warning must tell it.
        effect: bounds of bad - good of the first culprit, in the metric's unit.
        levels: (kind, id or title) of what must be found inside the first culprit, outermost first; () is not looked at.
        symptom, stage: of report.json's triage; None is not looked at.
        told: texts that the evidence of the triage must have.
    """

    status: str | tuple[str, ...]
    exit_status: int | tuple[int, ...]
    culprits: tuple[tuple[Commit | str, ...], ...] = ()
    inside: tuple[Commit, ...] = ()
    pieces: tuple[str, ...] = ()
    kind_of_change: str | None = None
    stretch: tuple[Commit, ...] = ()
    hidden: tuple[Commit, ...] = ()
    island: tuple[Commit, Commit] | None = None
    unread: tuple[str, Commit] | None = None
    effect: tuple[float, float] | None = None
    levels: tuple[tuple[str, str], ...] = ()
    symptom: str | None = None
    stage: str | None = None
    told: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """A history around the common program, a command line, and the truth.

    Attributes:
        name: also of its recording.
        history: commits after the base; the good end is the base, the bad end the last one.
        truth: see Truth.
        base: files that replace those of the common program.
        options: of `bisect-train run`, beside --good, --bad and --repo; `{files}` stands for the folder of `files`.
        files: files outside the repository, by name.
        command: the training command; `{files}` too.
        death_share: share of probes that are killed from outside.
        prepare: writes more into the folder of `files`: wheels, repositories of packages, data.
    """

    name: str
    history: tuple[Commit, ...]
    truth: Truth
    base: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = COMMAND
    death_share: float = 0.0
    prepare: Callable[[Path], None] | None = None

    def build(self, folder: Path) -> Built:
        """Write repository and files into a folder that is empty or does not exist."""
        by_subject, main = build_repository(folder / "repo", {**PROGRAM, **self.base}, self.history)
        files = folder / "files"
        files.mkdir()
        for name, text in self.files.items():
            (files / name).write_text(text)
        if self.prepare is not None:
            self.prepare(files)

        def fill(parts: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(part.replace("{files}", str(files)) for part in parts)

        return Built(folder / "repo", main, by_subject, fill((*COMMON_OPTIONS, *self.options)), fill(self.command))


@dataclass(frozen=True)
class Built:
    """A scenario's repository; `main` is the main line from the good end to the bad end, 40 hex digits each."""

    path: Path
    main: tuple[str, ...]
    by_subject: Mapping[str, str]
    options: tuple[str, ...]
    command: tuple[str, ...]

    @property
    def good(self) -> str:
        """The good end."""
        return self.main[0]

    @property
    def bad(self) -> str:
        """The bad end."""
        return self.main[-1]

    def hash_of(self, commit: Commit) -> str:
        """Return a commit's 40 hex digits."""
        return self.by_subject[commit.subject]

    def ids_of(self, culprit: tuple[Commit | str, ...]) -> list[str]:
        """Return the ids of a culprit's changes as report.json has them."""
        return [part if isinstance(part, str) else self.hash_of(part) for part in culprit]


def check_report(truth: Truth, built: Built, report: Mapping[str, Any], exit_status: int) -> None:
    """Raise AssertionError where a report does not say the truth, with what it says instead."""
    for check in _CHECKS:
        check(truth, built, report)
    allowed = (truth.exit_status,) if isinstance(truth.exit_status, int) else truth.exit_status
    assert exit_status in allowed, (exit_status, report["summary"])


def _check_status(truth: Truth, built: Built, report: Mapping[str, Any]) -> None:
    allowed = (truth.status,) if isinstance(truth.status, str) else truth.status
    assert report["status"] in allowed, (report["status"], report["summary"], _named(report), report["candidates"])
    assert truth.kind_of_change in (None, report["kind_of_change"]), report["kind_of_change"]


def _named(report: Mapping[str, Any]) -> list[list[str]]:
    return [[change["id"] for change in culprit["changes"]] for culprit in report["culprits"]]


def _check_culprits(truth: Truth, built: Built, report: Mapping[str, Any]) -> None:
    wanted = [built.ids_of(culprit) for culprit in truth.culprits]
    if wanted and report["status"] == "candidates":  # where the truth allows it: nobody named, the culprit first
        assert not _named(report) and report["candidates"][0]["id"] == wanted[0][-1], report["candidates"]
        return
    assert _named(report) == wanted, (report["summary"], _named(report), wanted)
    inside = {part["id"] for culprit in report["culprits"][:1] for part in culprit["inside"] if part["kind"] == "commit"}
    if truth.inside:
        assert inside == {built.hash_of(commit) for commit in truth.inside}, report["culprits"][0]["inside"]
    pieces = {part["id"] for culprit in report["culprits"][:1] for part in culprit["inside"] if part["kind"] in PIECES}
    if truth.pieces:
        assert pieces == set(truth.pieces), (report["summary"], report["culprits"][0]["inside"])


def _check_levels(truth: Truth, built: Built, report: Mapping[str, Any]) -> None:
    if truth.levels:
        inside = [part for culprit in report["culprits"][:1] for part in culprit["inside"]]
        found = [(part["kind"], part["title"] if part["kind"] == "commit" else part["id"]) for part in inside]
        assert found == list(truth.levels), (report["summary"], found)


def _check_effect(truth: Truth, built: Built, report: Mapping[str, Any]) -> None:
    if truth.effect and report["culprits"]:
        effect = report["culprits"][0]["effect"]
        assert truth.effect[0] <= effect["bad"] - effect["good"] <= truth.effect[1], effect


def _check_candidates(truth: Truth, built: Built, report: Mapping[str, Any]) -> None:
    found = {item["id"] for item in report["candidates"]}
    if truth.stretch:
        assert found <= {built.hash_of(commit) for commit in truth.stretch}, report["candidates"]
    assert {built.hash_of(commit) for commit in truth.hidden} <= found, report["candidates"]


def _check_island(truth: Truth, built: Built, report: Mapping[str, Any]) -> None:
    """The earlier bad stretch must be told, by the commits that begin and end it."""
    if truth.island is None:
        return
    said = " ".join(
        [report["summary"], *report["warnings"], *(text for item in report["culprits"] for text in item["conditions"])]
    )
    assert all(built.hash_of(commit)[:8] in said for commit in truth.island), f"the bad island is not told: {said}"


def _check_unread(truth: Truth, built: Built, report: Mapping[str, Any]) -> None:
    if truth.unread is None:
        return
    key, commit = truth.unread
    told = [text for text in report["warnings"] if f"nothing reads it from commit {built.hash_of(commit)[:8]} on" in text]
    assert len(told) == 1 and f"the key {key} is in " in told[0], report["warnings"]


def _check_triage(truth: Truth, built: Built, report: Mapping[str, Any]) -> None:
    triage = report["triage"]
    assert truth.symptom in (None, triage["symptom"]), triage
    assert truth.stage in (None, triage["stage"]), triage
    said = "\n".join(triage["evidence"])
    missing = [text for text in truth.told if text not in said]
    assert not missing, f"the triage does not tell {missing}: {said}"


_CHECKS: tuple[Callable[[Truth, Built, Mapping[str, Any]], None], ...] = (
    _check_status,
    _check_culprits,
    _check_levels,
    _check_effect,
    _check_candidates,
    _check_island,
    _check_unread,
    _check_triage,
)
