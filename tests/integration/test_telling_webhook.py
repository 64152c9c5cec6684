"""A webhook, told over a real connection: what it gets, how it can check it, what happens when it is down."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from typing import Any

import pytest

from bisect_train.cli.nightly_telling import Place
from bisect_train.core.errors import NotDelivered
from bisect_train.report import report_to_json
from bisect_train.telling.webhook import Webhook
from tests.support.findings import CULPRIT, closed, make_finding, updated
from tests.support.places import NOW_S, open_place
from tests.support.receivers import Answer, WebhookReceiver, start_receiver
from tests.support.report_cases import commit_space, play, step_change

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes....").decode()


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with start_receiver() as started:
        yield started


class Naps:
    """Keeps how long was slept, and does not."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []

    def __call__(self, wait_s: float) -> None:
        self.waits_s.append(wait_s)


def open_hook(receiver: WebhookReceiver, *, secret: str = SECRET, naps: Naps | None = None, **more: Any) -> Place:
    environ = {"BISECT_TRAIN_WEBHOOK_SECRET": secret}
    return open_place(receiver.url, environ=environ, sleep=naps or Naps(), **more)


def test_webhook_gets_the_finding_as_json_with_a_key_and_a_signature(receiver: WebhookReceiver) -> None:
    report = report_to_json(play(step_change(13), commit_space()).report())
    finding = make_finding(report=report)
    receipt = open_hook(receiver).tell(finding, earlier=None)
    (request,) = receiver.taken
    assert receipt == {"how": "sent", "place": "", "reason": ""}
    assert request.headers["content-type"] == "application/json"
    assert request.headers["idempotency-key"] == request.headers["webhook-id"] == finding.key
    assert (request.data["schema"], request.data["event"]) == (1, "finding")
    assert (request.data["id"], request.data["key"], request.data["state"]) == (finding.id, finding.key, "open")
    assert request.data["culprits"] == [{"kind": "commit", "id": CULPRIT, "title": "use the fast path"}]
    assert request.data["report"]["culprits"] == report["culprits"]
    assert report["probes"] and "probes" not in request.data["report"]
    signed = f"{finding.key}.{int(NOW_S)}.".encode() + request.body
    digest = hmac.new(b"a secret of thirty-two bytes....", signed, hashlib.sha256).digest()
    assert request.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert request.headers["webhook-timestamp"] == str(int(NOW_S))


def test_webhook_without_a_secret_is_not_signed(receiver: WebhookReceiver) -> None:
    open_hook(receiver, secret="").tell(make_finding(), earlier=None)
    assert "webhook-signature" not in receiver.taken[0].headers


def test_webhook_gets_each_telling_under_the_same_id(receiver: WebhookReceiver) -> None:
    channel, finding = open_hook(receiver), make_finding()
    first = channel.tell(finding, earlier=None)
    second = channel.tell(updated(finding), earlier=first)
    channel.tell(closed(updated(finding)), earlier=second)
    assert [request.data["state"] for request in receiver.taken] == ["open", "updated", "closed"]
    assert {request.data["id"] for request in receiver.taken} == {finding.id}
    assert len({request.headers["idempotency-key"] for request in receiver.taken}) == 3


def test_webhook_that_is_down_for_a_while_is_told_once_with_the_same_key(receiver: WebhookReceiver) -> None:
    naps = Naps()
    receiver.answers = [Answer(500), Answer(503, {"Retry-After": "7"}), Answer(429)]
    open_hook(receiver, naps=naps).tell(make_finding(), earlier=None)
    assert naps.waits_s == [1.0, 7.0, 16.0]
    assert len(receiver.taken) == 1
    assert len({request.headers["idempotency-key"] for request in receiver.asked}) == 1


def test_webhook_that_stays_down_is_given_up_with_a_reason(receiver: WebhookReceiver) -> None:
    receiver.answers = [Answer(500)] * 4
    with pytest.raises(NotDelivered, match=r"webhook 127\.0\.0\.1: answered 500"):
        open_hook(receiver).tell(make_finding(), earlier=None)
    assert len(receiver.asked) == 4


def test_webhook_that_asks_for_an_hour_is_left_for_the_next_time(receiver: WebhookReceiver) -> None:
    naps = Naps()
    receiver.answers = [Answer(429, {"Retry-After": "3600"})]
    with pytest.raises(NotDelivered, match="asks to wait 3600 s"):
        open_hook(receiver, naps=naps).tell(make_finding(), earlier=None)
    assert naps.waits_s == []


@pytest.mark.parametrize("status", [400, 401, 404, 410])
def test_webhook_that_refuses_is_asked_once(receiver: WebhookReceiver, status: int) -> None:
    receiver.answers = [Answer(status)]
    with pytest.raises(NotDelivered, match=f"answered {status}"):
        open_hook(receiver).tell(make_finding(), earlier=None)
    assert len(receiver.asked) == 1


def test_webhook_that_has_moved_is_not_followed(receiver: WebhookReceiver) -> None:
    receiver.answers = [Answer(307, {"Location": f"{receiver.url}/elsewhere"})]
    with pytest.raises(NotDelivered, match="it has moved"):
        open_hook(receiver).tell(make_finding(), earlier=None)
    assert len(receiver.asked) == 1


def test_webhook_that_does_not_answer_in_time_is_tried_again(receiver: WebhookReceiver) -> None:
    receiver.answers = [Answer(delay_s=0.5)]
    hook = open_hook(receiver)
    patient = hook.messenger
    patient.messenger._timeout_s = (1.0, 0.1)  # type: ignore[attr-defined]
    hook.tell(make_finding(), earlier=None)
    assert len(receiver.asked) == 2


def test_webhook_that_nobody_listens_at_says_so_without_its_path() -> None:
    with start_receiver() as gone:
        url = gone.url
    channel = open_place(f"{url}/part-that-is-a-secret", environ={}, sleep=Naps())
    with pytest.raises(NotDelivered) as caught:
        channel.tell(make_finding(), earlier=None)
    assert "cannot be reached" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_webhook_names_authors_only_where_that_was_asked_for(receiver: WebhookReceiver) -> None:
    open_hook(receiver).tell(make_finding(), earlier=None)
    open_hook(receiver, mention_authors=True).tell(make_finding(), earlier=None)
    assert b"ada@example.org" not in receiver.taken[0].body
    assert receiver.taken[1].data["culprits"][0]["email"] == "ada@example.org"


def test_webhook_body_is_strict_json_without_nan(receiver: WebhookReceiver) -> None:
    open_hook(receiver).tell(make_finding(report={"null_probability": float("nan")}), earlier=None)
    assert b"NaN" not in receiver.taken[0].body


def test_webhook_does_not_show_its_secret() -> None:
    assert "thirty-two" not in repr(Webhook("https://example.org/x", secret=b"thirty-two"))
