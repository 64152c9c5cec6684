"""The service and connections that say nothing, requests that forge a line of its log, and values that try to be more."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn

from bisect_train.core.errors import MachineError
from bisect_train.service.connection import BoundedConnection
from tests.support.service import ServiceLab, service_lab, small_repo


class Hasty(BoundedConnection):
    """Waits for headers for a fifth of a second."""

    header_s = 0.2


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_repo(tmp_path_factory.mktemp("security") / "repo").path


@pytest.fixture
def lab(tmp_path: Path, repo: Path) -> Iterator[ServiceLab]:
    with service_lab(tmp_path / "home", repo) as made:
        yield made


@contextmanager
def listening(lab: ServiceLab) -> Iterator[int]:
    server = uvicorn.Server(uvicorn.Config(lab.app, port=0, http=Hasty, log_config=None, timeout_keep_alive=60))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 60
    while not server.started:
        assert time.monotonic() < until and thread.is_alive()
        time.sleep(0.02)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        lab.app.state.parts.feed.is_closing = True
        server.should_exit = True
        thread.join(60)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
def test_connection_without_whole_headers_is_closed(lab: ServiceLab, said: bytes) -> None:
    with listening(lab) as port, socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(said)
        assert connection.recv(65536) == b"", "the service has closed it, without an answer"


def test_connection_whose_second_request_never_ends_is_closed(lab: ServiceLab) -> None:
    with listening(lab) as port, socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /")
        rest = b"".join(iter(lambda: connection.recv(65536), b""))
        assert b"HTTP/1.1" not in rest


def test_requests_in_time_are_answered_on_one_connection(lab: ServiceLab) -> None:
    with listening(lab) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        for _ in range(3):
            assert client.get("/healthz").status_code == 200
            time.sleep(0.3)  # longer than its headers may take: a quiet connection has uvicorn's own limit


def test_address_of_a_request_forges_no_line_of_the_log(
    lab: ServiceLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise MachineError("the database is gone")

    monkeypatch.setattr(lab.backend.queue, "users", fail)
    lab.refuse(503, "GET", "/api/v1/bisections/x%0AERROR%20forged%1b[2J%E2%80%AE")
    (message,) = [record.getMessage() for record in caplog.records if "database" in record.getMessage()]
    assert "forged" in message and not [letter for letter in message if not letter.isprintable()]


@pytest.mark.parametrize(
    "body",
    [
        {"repository": "../demo", "good": ["old"]},
        {"repository": "demo", "good": ["--upload-pack=touch hit"]},
        {"repository": "demo", "good": ["old"], "bad": "--output=hit"},
        {"repository": "demo", "good": ["old"], "recipe": "../../etc/passwd"},
        {"repository": "demo", "good": ["old"], "recipe": "/etc/passwd"},
        {"repository": "demo", "good": ["old"], "config": "../../etc/passwd"},
        {"repository": "demo", "good": ["old"], "config": ".git/config"},
        {"repository": "demo", "good": ["old"], "options": {"skip": ["--output=hit"]}},
        {"repository": "demo", "good": [], "bad": "HEAD", "kind": "check", "config": "/etc/passwd", "settings": ["a=1"]},
        {"repository": "demo", "good": [], "bad": "HEAD", "kind": "check", "config": "conf\\..\\..\\x", "settings": ["a=1"]},
        {"repository": "demo", "good": ["old"], "bad": "HEAD\nother"},
        {"repository": "demo'; DROP TABLE bisections; --", "good": ["old"]},
    ],
)
def test_name_that_is_a_path_an_option_or_a_statement_is_refused(
    lab: ServiceLab, tmp_path: Path, body: dict[str, object]
) -> None:
    answer = lab.post("/bisections", body)
    assert answer.status_code in (400, 422) and "root:" not in answer.text
    assert lab.get("/bisections")["total"] == 0 and not list(tmp_path.rglob("hit"))


def test_id_and_filter_that_are_statements_find_nothing(lab: ServiceLab) -> None:
    name = lab.submit()
    for path in ("/bisections/' OR '1'='1", "/bisections/%25", "/probes/' OR 1=1 --"):
        assert lab.call("GET", f"/api/v1{path}").status_code in (400, 404, 422)
    for value in ("' OR '1'='1", "%", "_"):
        assert lab.call("GET", "/api/v1/bisections", params={"user": value, "repository": value}).json().get("total", 0) == 0
    assert lab.get(f"/bisections/{name}")["id"] == name
