"""From a finding to its message, and to whom: what is told, what stays unsaid, which addresses are taken."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from bisect_train.cli.nightly_telling import Place
from bisect_train.core.errors import InputError, NotDelivered
from bisect_train.nightly.finding import Finding, FindingKind, FindingState
from bisect_train.report.markdown_text import width
from bisect_train.telling import Message, Messenger, Receipt, compose, is_to_be_told, open_messenger
from bisect_train.telling.messenger import skip_of
from bisect_train.telling.patience import LONGEST_WAIT_S, PAUSES_S, Patient, TryLater, read_retry_after
from bisect_train.telling.webhook import read_secret
from tests.support.findings import CULPRIT, HOSTILE, closed, make_finding, updated

UNCONFIRMED = make_finding(is_confirmed=False, culprits=(), candidates=make_finding().culprits)
TOKEN = {"GITHUB_TOKEN": "ghp_secret"}


# ---- what is told -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("finding", "is_told"),
    [
        (make_finding(), True),
        (closed(make_finding()), True),
        (UNCONFIRMED, False),
        (closed(UNCONFIRMED), False),
        (replace(UNCONFIRMED, kind=FindingKind.DRIFT), True),
        (replace(UNCONFIRMED, kind=FindingKind.UNTESTABLE), True),
    ],
)
def test_only_what_is_confirmed_or_blames_nobody_is_told(finding: Finding, is_told: bool) -> None:
    assert is_to_be_told(finding) is is_told
    assert is_to_be_told(finding, with_candidates=True)


@pytest.mark.parametrize(
    ("finding", "conclusion"),
    [
        (make_finding(), "failure"),
        (make_finding(report={"kind_of_change": "numerics_only"}), "neutral"),
        (UNCONFIRMED, "neutral"),
        (closed(make_finding()), "neutral"),  # another commit has mended it, this one stays bad
        (closed(make_finding(), fixed_by=""), "success"),
        (make_finding(state=FindingState.INTENDED), "neutral"),
    ],
)
def test_conclusion_of_a_check_run(finding: Finding, conclusion: str) -> None:
    assert compose(finding).conclusion == conclusion


def test_message_says_what_how_big_and_where_to_look() -> None:
    message = compose(make_finding())
    assert message.title == f"loss is worse on main since {CULPRIT[:8]}"
    assert f"commit {CULPRIT[:8]} use the fast path" in message.text
    assert "https://train.example.org/b/65f0a1b2" in message.text and "bisect-train report 65f0a1b2" in message.text
    assert "[the dashboard](https://train.example.org/b/65f0a1b2)" in message.markdown


def test_message_of_an_end_says_since_when() -> None:
    message = compose(closed(make_finding()))
    assert message.is_closing and message.title.startswith("Over: ")
    assert f"It is over since {closed(make_finding()).fixed_by[:8]}" in message.text


def test_message_names_authors_of_proved_culprits_only_and_only_where_asked() -> None:
    assert "Ada" not in compose(make_finding()).text
    assert compose(make_finding()).authors == ()
    asked = compose(make_finding(), mention_authors=True)
    assert "Ada Lovelace" in asked.text and asked.authors[0].commit == CULPRIT
    assert compose(UNCONFIRMED, mention_authors=True).authors == ()


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "https://x.y/)[a](http://z", "https://x.y/ z", "file:///etc/passwd"]
)
def test_message_leaves_out_a_link_that_is_none(address: str) -> None:
    message = compose(make_finding(links=(("here", address),)))
    assert "here" not in message.text and "here" not in message.markdown


def test_message_hides_logins_of_addresses() -> None:
    finding = make_finding(repo="https://me:pw@host/r.git", links=(("page", "https://me:pw@host/x"),))
    message = compose(finding)
    assert "pw" not in str(message.data["repo"]) + message.text + message.markdown


def test_message_of_hostile_text_calls_nobody_anywhere() -> None:
    message = compose(make_finding(title=HOSTILE, summary=HOSTILE, details=(HOSTILE,)))
    for text in (message.title, message.text, message.markdown):
        assert "@torvalds" not in text and "#12" not in text and "<!channel" not in text
    assert "\n" not in message.title and len(message.title) <= 256


def test_message_of_endless_text_fits_on_github() -> None:
    report = {"status": "isolated", "summary": "<" * 9000, "warnings": ["&" * 9000] * 20}
    for told in (report, None):
        message = compose(make_finding(title="@a" * 999, summary="<" * 9000, details=("<" * 9000,) * 20, report=told))
        assert width(message.markdown) <= 60_000
        assert len(message.title) <= 256
        assert "left out: too long" in message.markdown


@pytest.mark.parametrize(
    ("address", "module", "extra"), [("github-issue:a/b", "github", "github"), ("mailto://x", "apprise", "telling")]
)
def test_missing_library_is_named_with_its_extra(
    address: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"bisect-train\[{extra}\]"):
        open_messenger(address, environ=TOKEN)


# ---- how it is told -----------------------------------------------------------------------------------------------


@dataclass
class Script:
    """A messenger that does what it is told, one entry a call."""

    acts: list[Any] = field(default_factory=list)
    told: list[tuple[Message, Receipt | None]] = field(default_factory=list)
    name: str = "script"
    can_edit: bool = False

    def send(self, message: Message, *, earlier: Receipt | None = None) -> Receipt:
        act = self.acts.pop(0) if self.acts else None
        if isinstance(act, Exception):
            raise act
        if skipped := skip_of(message, earlier, can_edit=self.can_edit):
            return skipped
        self.told.append((message, earlier))
        return Receipt("sent", place=f"message {len(self.told)}")


def test_place_that_cannot_edit_gets_one_message_and_one_when_it_is_over() -> None:
    script, finding = Script(), make_finding()
    channel = Place("chat", script, False, False)
    receipt = None
    tellings = [finding, updated(finding), updated(updated(finding)), closed(finding), replace(finding, revision=9)]
    for telling in tellings:
        receipt = channel.tell(telling, earlier=receipt)
    assert [message.state for message, _ in script.told] == ["open", "closed", "open"]


def test_first_message_of_a_place_may_be_an_update() -> None:
    script = Script()
    channel = Place("issue", script, False, False, is_public=True)
    receipt = channel.tell(UNCONFIRMED, earlier=None)
    assert receipt["how"] == "left out" and script.told == []
    channel.tell(updated(make_finding()), earlier=receipt)
    assert [message.state for message, _ in script.told] == ["updated"]


def test_people_of_the_team_hear_of_what_is_not_proved_but_no_commit_is_named() -> None:
    script = Script()
    unproved = replace(UNCONFIRMED, title="loss is worse on main", summary="No change is proved: 3 changes could be the one.")
    Place("chat", script, False, False).tell(unproved, earlier=None)
    [(message, _)] = script.told
    named = UNCONFIRMED.candidates[0]
    assert message.state == "open"
    for text in (message.text, message.markdown, message.title):
        assert named.id[:8] not in text and named.title not in text


def test_receipt_of_what_was_left_out_keeps_the_one_before() -> None:
    script, finding = Script(), make_finding()
    channel = Place("chat", script, False, False)
    first = channel.tell(finding, earlier=None)
    left = channel.tell(updated(finding), earlier=first)
    channel.tell(closed(finding), earlier=left)
    assert script.told[-1][1] == Receipt(**first)


def test_patient_messenger_waits_as_long_as_it_is_asked_to() -> None:
    naps: list[float] = []
    script = Script([TryLater("busy"), TryLater("busy", after_s=LONGEST_WAIT_S)])
    patient: Messenger = Patient(script, naps.append)
    assert patient.send(compose(make_finding())).is_told
    assert naps == [PAUSES_S[0], LONGEST_WAIT_S]


def test_patient_messenger_gives_up_with_what_was_wrong_last() -> None:
    script = Script([TryLater(f"try {idx}") for idx in range(9)])
    with pytest.raises(NotDelivered, match="script: try 3"):
        Patient(script, lambda wait_s: None).send(compose(make_finding()))
    assert len(script.acts) == 5


def test_patient_messenger_does_not_repeat_a_refusal() -> None:
    script = Script([NotDelivered("no"), NotDelivered("no")])
    with pytest.raises(NotDelivered):
        Patient(script, lambda wait_s: None).send(compose(make_finding()))
    assert len(script.acts) == 1


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        (None, None),
        ("", None),
        ("12", 12.0),
        ("soon", None),
        ("-3", None),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str | None, wait_s: float | None) -> None:
    assert read_retry_after(value, now_s=60.0) == wait_s


# ---- addresses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "name", "can_edit"),
    [
        ("https://hooks.example.org/training?team=a", "webhook hooks.example.org", True),
        ("github-issue:acme/train.er", "issue in acme/train.er", True),
        ("github-comment:acme/trainer#12", "comment on acme/trainer#12", True),
        ("github-check:acme/trainer", "check-run in acme/trainer", True),
        (f"github-check:acme/trainer@{CULPRIT}", "check-run in acme/trainer", True),
    ],
)
def test_address_is_opened_without_asking_anybody(address: str, name: str, can_edit: bool) -> None:
    messenger = open_messenger(address, environ=TOKEN)
    assert (messenger.name, messenger.can_edit) == (name, can_edit)
    named = open_messenger("env:PLACE", environ={**TOKEN, "PLACE": address})
    assert named.name == name
    assert "ghp_secret" not in repr(messenger)


@pytest.mark.parametrize(
    "address",
    [
        "https://user:s3cret@hooks.example.org/x",
        "https://s3cret@hooks.example.org/x",
        "https://hooks.example.org/x?token=s3cret",
        "https://hooks.example.org/x?sig=s3cret",
        "https://hooks.slack.com/services/T/B/s3cret",
        "slack://T/B/s3cret",
        "tgram://s3cret/12",
        "mailto://user:s3cret@example.org",
        "mailto://example.org?user=u&pass=s3cret",
    ],
)
def test_address_that_may_hold_a_secret_is_taken_from_the_environment_only(address: str) -> None:
    with pytest.raises(InputError, match="env:NAME") as caught:
        open_messenger(address, environ={})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "acme/trainer",
        "github-issue:acme",
        "github-issue:acme/trainer#3",
        "github-comment:acme/trainer",
        "github-comment:acme/trainer#x",
        "github-check:acme/trainer#3",
        "github-check:acme/trainer@main",
        "github-pr:acme/trainer",
        "https:///path",
        "https://host:99999999/",
        "https://[::1/x",
        "env:",
        "env:NOT-A-NAME",
        "env:MISSING",
        "me@example.org",
    ],
)
def test_address_that_is_none_is_bad_input(address: str) -> None:
    with pytest.raises(InputError):
        open_messenger(address, environ=TOKEN)


def test_github_without_a_token_says_which_variable() -> None:
    with pytest.raises(InputError, match="GITHUB_TOKEN"):
        open_messenger("github-issue:acme/trainer", environ={})


def test_secret_of_a_webhook_is_read_and_never_shown() -> None:
    assert read_secret("plain words", variable="X") == b"plain words"
    assert read_secret("whsec_aGk=", variable="X") == b"hi"
    with pytest.raises(InputError) as caught:
        read_secret("whsec_not base64", variable="X")
    assert "not base64" not in caught.value.message
