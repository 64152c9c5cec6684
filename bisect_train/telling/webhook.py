"""A webhook: the finding as JSON, signed as Standard Webhooks says, so that libraries for it can check what comes.

    webhook-id         the message's key, the same when it is sent again; also as Idempotency-Key
    webhook-timestamp  seconds since the epoch
    webhook-signature  "v1," + base64(HMAC-SHA256(secret, id + "." + timestamp + "." + body)), only with a secret

Source: https://github.com/standard-webhooks/standard-webhooks, spec version 1.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from urllib.parse import urlsplit

import requests

from bisect_train import __version__
from bisect_train.core.errors import InputError, NotDelivered
from bisect_train.report.wire import clean_json
from bisect_train.telling.message import Message
from bisect_train.telling.messenger import Receipt, skip_of
from bisect_train.telling.patience import PASSING, TryLater, read_retry_after

TIMEOUT_S = (5.0, 15.0)  # to connect, and between two pieces of the answer
PREFIX = "whsec_"


class Webhook:
    """Posts each telling of a finding; the receiver keeps one entry a finding by its `id`.

    Args:
        url: http or https.
        secret: key of the signature, None for none.
        clock: seconds since the epoch.
        timeout_s: to connect, and to answer.
    """

    can_edit = True

    def __init__(
        self,
        url: str,
        *,
        secret: bytes | None = None,
        clock: Callable[[], float] = time.time,
        timeout_s: tuple[float, float] = TIMEOUT_S,
    ) -> None:
        self._url = url
        self._secret = secret
        self._clock = clock
        self._timeout_s = timeout_s
        self.name = f"webhook {urlsplit(url).hostname}"

    def send(self, message: Message, *, earlier: Receipt | None = None) -> Receipt:
        """Post it. Raises TryLater, NotDelivered."""
        skipped = skip_of(message, earlier, can_edit=True)
        if skipped is not None:
            return skipped
        body = json.dumps(clean_json(message.data), allow_nan=False).encode()
        try:
            answer = requests.post(
                self._url,
                data=body,
                headers=self._headers(message.key, body),
                timeout=self._timeout_s,
                allow_redirects=False,
                auth=lambda request: request,  # no login of a .netrc
                stream=True,  # what it answers is of no interest
            )
        except requests.RequestException as error:
            raise TryLater(say_failure(error)) from None
        with answer:
            self._judge(answer)
        return Receipt("edited" if earlier else "sent")

    def _headers(self, key: str, body: bytes) -> dict[str, str]:
        stamp = str(int(self._clock()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"bisect-train/{__version__}",
            "Idempotency-Key": key,
            "webhook-id": key,
            "webhook-timestamp": stamp,
        }
        if self._secret is not None:
            headers["webhook-signature"] = f"v1,{sign(key, stamp, body, secret=self._secret)}"
        return headers

    def _judge(self, answer: requests.Response) -> None:
        status = answer.status_code
        if 200 <= status < 300:
            return
        if status in PASSING:
            wait_s = read_retry_after(answer.headers.get("Retry-After"), now_s=self._clock())
            raise TryLater(f"answered {status}", after_s=wait_s)
        if 300 <= status < 400:
            raise NotDelivered(f"{self.name}: answered {status}, it has moved", hint="name its new address")
        raise NotDelivered(f"{self.name}: answered {status}", hint="look at the address and the secret of the webhook")


def sign(key: str, stamp: str, body: bytes, *, secret: bytes) -> str:
    """Return the signature of a message, base64."""
    digest = hmac.new(secret, f"{key}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def read_secret(text: str, *, variable: str) -> bytes:
    """Return the key of a secret: base64 behind `whsec_`, or the text itself. Raises InputError, which does not show it."""
    if not text.startswith(PREFIX):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise InputError(f"{variable} begins with {PREFIX}, but base64 does not follow") from None


def say_failure(error: requests.RequestException) -> str:
    """Return why a request failed; the error's own text would show the whole address."""
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not trusted"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError):
        return "cannot be reached"
    return f"the request failed ({type(error).__name__})"
