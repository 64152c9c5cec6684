"""E-mail, told through apprise to a mail server on loopback; other chats as far as they can be built without their servers."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from bisect_train.cli.nightly_telling import Place
from bisect_train.core.errors import InputError, NotDelivered
from bisect_train.telling.chat import hide_parts
from tests.support.findings import HOSTILE, closed, make_finding, updated
from tests.support.places import open_place
from tests.support.receivers import MailSink, start_mail_sink

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # apprise imports modules of the standard library that go


@pytest.fixture
def sink() -> Iterator[MailSink]:
    with start_mail_sink() as started:
        yield started


def open_mail(sink: MailSink, naps: list[float] | None = None) -> Place:
    url = f"mailto://127.0.0.1:{sink.port}?from=bisect@example.org&to=team@example.org&mode=insecure"
    return open_place("env:MAIL", environ={"MAIL": url}, sleep=(naps if naps is not None else []).append)


def text_of(sink: MailSink, idx: int) -> str:
    part = sink.mails[idx].get_body(("plain",))
    assert part is not None
    return str(part.get_content())


def test_mail_is_sent_when_something_is_found_and_when_it_is_over(sink: MailSink) -> None:
    place, finding = open_mail(sink), make_finding()
    receipt = place.tell(finding, earlier=None)
    assert receipt["how"] == "sent"
    again = place.tell(updated(finding), earlier=receipt)
    assert again == receipt and len(sink.mails) == 1
    place.tell(closed(updated(finding)), earlier=again)
    assert [mail["Subject"] for mail in sink.mails] == [finding.title, f"Over: {finding.title}"]
    assert sink.mails[0]["To"] == "team@example.org"
    assert "makes loss worse: 3.0 -> 3.4 nats" in text_of(sink, 0)


def test_mail_that_was_never_sent_is_not_closed(sink: MailSink) -> None:
    assert open_mail(sink).tell(closed(make_finding()), earlier=None)["how"] == "left out"
    assert sink.mails == []


def test_mail_with_a_hostile_subject_has_one_line_and_no_html(sink: MailSink) -> None:
    open_mail(sink).tell(make_finding(title=HOSTILE, summary=HOSTILE), earlier=None)
    assert "\n" not in sink.mails[0]["Subject"]
    assert sink.mails[0].get_content_type() == "text/plain"
    assert "@torvalds" not in text_of(sink, 0)


def test_mail_server_that_refuses_for_a_while_is_tried_again(sink: MailSink) -> None:
    naps: list[float] = []
    sink.num_refused = 1
    assert open_mail(sink, naps).tell(make_finding(), earlier=None)["how"] == "sent"
    assert (len(sink.mails), naps) == (1, [1.0])


def test_mail_server_that_is_gone_is_said_without_a_secret(capfd: pytest.CaptureFixture[str]) -> None:
    with start_mail_sink() as gone:
        port = gone.port
    url = f"mailto://mailer:s3cretword@127.0.0.1:{port}?to=team@example.org&mode=insecure&from=a@example.org"
    place = open_place("env:MAIL", environ={"MAIL": url}, sleep=lambda wait_s: None)
    with pytest.raises(NotDelivered) as caught:
        place.tell(make_finding(), earlier=None)
    printed = capfd.readouterr()
    assert "s3cretword" not in str(caught.value) + repr(place) + printed.out + printed.err
    assert logging.getLogger("apprise").propagate


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#training", "Slack (slack)"),
        ("https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "Slack (https)"),
        ("tgram://123456789:abcdefghijklmnop_ABCDEFGHIJKLMNOPQR/12315544", "Telegram (tgram)"),
    ],
)
def test_chats_are_known_by_their_address_from_a_variable(url: str, name: str) -> None:
    place = open_place("env:CHAT", environ={"CHAT": url}, sleep=print)
    assert (place.name, place.messenger.can_edit) == (name, False)
    assert "TIiajkd" not in repr(place)


def test_chat_that_apprise_does_not_know_is_refused_without_its_address() -> None:
    with pytest.raises(InputError) as caught:
        open_place("env:CHAT", environ={"CHAT": "nosuchchat://T1JJ3T3L2/secretpart"}, sleep=print)
    assert "secretpart" not in str(caught.value)


def test_what_apprise_says_is_shown_without_parts_of_the_address() -> None:
    said = hide_parts("Failed to send to T1JJ3T3L2 with pa%20ss and pa ss", "slack://T1JJ3T3L2/pa%20ss/x")
    assert said == "Failed to send to (hidden) with (hidden) and (hidden)"
