"""What is told of a finding, as one value that every way of telling understands.

A message is made from a finding only: nothing is looked up, nothing is sent. It holds no secret, and all text in it that comes
from a repository (subjects of commits, config values) is tamed: it calls nobody by `@name`, and it makes no link and no HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

CLOSING = ("closed", "intended")
"""States of a finding that is over."""


class FoundChange(Protocol):
    """What telling needs of a change that was named."""

    @property
    def kind(self) -> str:
        """Of report.json."""

    @property
    def id(self) -> str:
        """Of report.json."""

    @property
    def title(self) -> str:
        """One line for a person."""

    @property
    def author(self) -> str:
        """Name of a commit's author, "" if unknown."""

    @property
    def email(self) -> str:
        """Of the author, "" if unknown."""


class Tellable(Protocol):
    """What telling needs of a finding; `bisect_train.nightly.finding.Finding` is one, and says what each of these is."""

    @property
    def id(self) -> str:
        """Letters, digits and dashes."""

    @property
    def key(self) -> str:
        """The same for a message that is sent twice."""

    @property
    def state(self) -> Enum:
        """Open, updated, closed or intended."""

    @property
    def kind(self) -> Enum:
        """Regression, drift or untestable."""

    @property
    def title(self) -> str:
        """A few words."""

    @property
    def summary(self) -> str:
        """One sentence or two."""

    @property
    def details(self) -> Sequence[str]:
        """Further sentences."""

    @property
    def culprits(self) -> Sequence[FoundChange]:
        """Proved changes."""

    @property
    def candidates(self) -> Sequence[FoundChange]:
        """Changes that could be it."""

    @property
    def is_confirmed(self) -> bool:
        """Whether the proof of the answer has held."""

    @property
    def bad(self) -> str:
        """Commit that was found to be worse."""

    @property
    def fixed_by(self) -> str:
        """Commit that closed it, or ""."""

    @property
    def bisection(self) -> str:
        """Id of the stored bisection, or ""."""

    @property
    def report(self) -> dict[str, Any] | None:
        """report.json."""

    @property
    def links(self) -> Sequence[tuple[str, str]]:
        """(words, address) pairs."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able dict."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who made a commit that is blamed: its 40 hex digits, name and e-mail of git, "" where unknown."""

    commit: str
    name: str
    email: str


@dataclass(frozen=True, slots=True)
class Message:
    """One telling of one finding.

    Attributes:
        finding: id; a way of telling that can edit keeps one message a finding.
        key: what a receiver drops a repeat by.
        state: open, updated, closed or intended.
        title: one line.
        text: the message for chat and e-mail, plain text.
        markdown: the message for GitHub.
        conclusion: of a check-run: failure, neutral or success.
        commit: 40 hex digits that a check-run belongs to, or "".
        authors: who is to be called by name, () unless that was asked for.
        data: the JSON of a webhook.
    """

    finding: str
    key: str
    state: str
    title: str
    text: str
    markdown: str
    conclusion: str
    commit: str
    authors: tuple[Author, ...]
    data: dict[str, Any]

    @property
    def is_closing(self) -> bool:
        """Whether the finding is over."""
        return self.state in CLOSING
