"""What a place of a watch is told of what is not proved: what is worse, no commit, and nothing in public."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from bisect_train.cli.nightly_telling import Place, places_of
from bisect_train.nightly.finding import FindingState, FoundChange
from bisect_train.telling import Message, Receipt
from tests.support.findings import CULPRIT, make_finding

UNPROVED = make_finding(
    culprits=(),
    candidates=(FoundChange("commit", CULPRIT, "a guess"),),
    is_confirmed=False,
    title="loss is worse",
    summary="Worse.",
)


@dataclass
class Kept:
    """A messenger that keeps what it is given."""

    got: list[Message] = field(default_factory=list)
    name: str = "kept"
    can_edit: bool = True

    def send(self, message: Message, *, earlier: Receipt | None = None) -> Receipt:
        self.got.append(message)
        return Receipt("edited" if earlier else "sent", "7")


def test_what_is_not_proved_names_no_commit() -> None:
    messenger = Kept()
    receipt = Place("x", messenger, False, False).tell(UNPROVED, earlier=None)
    assert receipt["how"] == "sent" and "Worse." in messenger.got[0].text
    assert CULPRIT[:8] not in messenger.got[0].text and messenger.got[0].data["candidates"] == []


def test_in_public_it_is_told_once_it_is_proved() -> None:
    messenger = Kept()
    place = Place("x", messenger, False, False, is_public=True)
    left_out = place.tell(UNPROVED, earlier=None)
    assert left_out["how"] == "left out" and messenger.got == []
    proved = make_finding(revision=2, state=FindingState.UPDATED)
    assert place.tell(proved, earlier=left_out)["how"] == "sent" and CULPRIT[:8] in messenger.got[0].text


@pytest.mark.parametrize("is_public", [False, True])
def test_candidates_are_told_where_asked_for(is_public: bool) -> None:
    messenger = Kept()
    Place("x", messenger, True, False, is_public=is_public).tell(UNPROVED, earlier=None)
    assert CULPRIT[:8] in messenger.got[0].text


def test_places_are_known_by_a_digest_and_github_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "t0ken")
    addresses = ("http://127.0.0.1:1/secret-path", "github-issue:acme/trainer", "http://127.0.0.1:1/secret-path")
    hook, issue = places_of(addresses, with_candidates=False, mention_authors=False)
    assert (hook.is_public, issue.is_public) == (False, True)
    assert "secret" not in hook.id + hook.name and hook.id != issue.id
