"""Servers on loopback that are told: a webhook receiver, and a mail server that keeps what it is given."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default as modern
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session


@dataclass
class Answer:
    """What a receiver answers: status, headers; `delay_s` before it does."""

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


@dataclass
class Request:
    """What came: method, path, headers in small letters, body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> dict[str, Any]:
        """The body as JSON."""
        return cast(dict[str, Any], json.loads(self.body))


@dataclass
class WebhookReceiver:
    """Keeps the requests that it takes (2xx); `answers` are given first, one each, then 204."""

    url: str
    taken: list[Request] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


@contextmanager
def start_receiver() -> Iterator[WebhookReceiver]:
    """Start a webhook receiver, and stop it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = Request("POST", self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            receiver.asked.append(request)
            answer = receiver.answers.pop(0) if receiver.answers else Answer()
            time.sleep(answer.delay_s)
            if answer.status < 300:
                receiver.taken.append(request)
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with serve(Handler) as url:
        receiver = WebhookReceiver(f"{url}/hook")
        yield receiver


@contextmanager
def serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free port of loopback; yield the address."""

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing: a client that gave up waiting is part of a test."""

    server = Quiet(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class MailSink:
    """Keeps the mails that it takes; the first `num_refused` are refused for a while (451)."""

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    num_refused: int = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        """Take a mail, or refuse it."""
        if self.num_refused:
            self.num_refused -= 1
            return "451 try again later"
        self.mails.append(cast(EmailMessage, message_from_bytes(cast(bytes, envelope.content), policy=modern)))
        return "250 taken"


@contextmanager
def start_mail_sink() -> Iterator[MailSink]:
    """Start a mail server, and stop it."""
    sink = MailSink()
    with socket.create_server(("127.0.0.1", 0)) as probe:  # the controller cannot choose a free port by itself
        sink.port = probe.getsockname()[1]
    controller = Controller(sink, hostname="127.0.0.1", port=sink.port)
    controller.start()
    try:
        yield sink
    finally:
        controller.stop()
