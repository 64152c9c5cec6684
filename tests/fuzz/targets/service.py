"""The service's addresses: any method, path, query, headers and body; no answer may be a fault, none may come late.

Requests go to the application itself, as a server would hand them over, so that bytes are sent that no client sends.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.fuzz.engine import Target
from tests.fuzz.places import folder
from tests.fuzz.text_changes import change_text, to_bytes
from tests.fuzz.value_changes import STRANGE, change_value, json_text
from tests.support.service import ServiceLab, service_lab
from tests.support.simulated_bisection import Lab, drive

API = "/api/v1"
PATHS = (
    *("/bisections", "/bisections/{id}", "/bisections/{id}/state", "/bisections/{id}/live", "/bisections/{id}/changes"),
    *("/bisections/{id}/results", "/bisections/{id}/report", "/bisections/{id}/report.html", "/bisections/{id}/events"),
    *("/bisections/{id}/cancel", "/bisections/{id}/resume", "/bisections/{id}/marks", "/bisections/{id}/undo"),
    *("/probes/{key}", "/probes/{key}/curves", "/compare", "/session", "/offer", "/events", "/openapi.json"),
)
PAGES = (
    *("/", "/b/{id}", "/b/{id}/live", "/b/{id}/changes", "/b/{id}/change/1", "/b/{id}/probes", "/b/{id}/probe/{key}"),
    *("/b/{id}/compare", "/static/page.css", "/submit", "/b/{id}/cancel", "/b/{id}/mark", "/login", "/healthz", "/metrics"),
)
SUBMISSION = {
    "kind": "run",
    "repository": "demo",
    "good": ["old"],
    "bad": "HEAD",
    "options": {
        "steps": 7,
        "seeds": 6,
        "max_probes": 40,
        "parallel": 2,
        "paths": ["train.py"],
        "skip": ["HEAD~1"],
        "min_effect": 0.1,
    },
}
CHECK = {"kind": "check", "repository": "demo", "config": "conf/a.yaml", "other_config": "conf/b.yaml", "settings": []}
BODIES: dict[str, tuple[Any, ...]] = {
    "/bisections": (SUBMISSION, CHECK, {**CHECK, "other_config": None, "settings": ["seed=5", "lr=4"]}),
    "/bisections/{id}/marks": ({"revision": "old", "verdict": "good"},),
    "/bisections/{id}/undo": ({"last": 1},),
    "/bisections/{id}/resume": ({"max_probes": 10, "budget_gpu_hours": 1.0},),
    "/session": ({"token": "x" * 40},),
}
FORMS = ("csrf={csrf}&good=old&bad=HEAD&repository=demo&steps=5", "token=abcdefghij", "csrf={csrf}&rev=old&verdict=good")
QUERIES = (
    *("offset=0&limit=10", "status=queued&status=finished", "with_parts=true", "points=5", "signal=loss&rank=0", "after=3"),
    *(
        "left={key}&right={key}",
        "a={key}&b={key}",
        "page=2&verdict=bad&purpose=search",
        "repository=demo&user=local",
        "q=%00%ff",
    ),
)
HEADERS = (
    *(
        ("authorization", "Bearer x"),
        ("cookie", "bisect_train_session=abc"),
        ("origin", "http://127.0.0.1:8765"),
        ("range", "bytes=0-1"),
    ),
    *(
        ("last-event-id", "3"),
        ("content-length", "5"),
        ("accept", "text/html"),
        ("x-forwarded-for", "1.2.3.4"),
        ("sec-fetch-site", "same-origin"),
    ),
    *(("if-none-match", '"x"'), ("accept-language", "de"), ("content-encoding", "gzip"), ("transfer-encoding", "chunked")),
)
TYPES = (
    "application/json",
    "application/json",
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/plain",
)
Case = tuple[str, str, str, list[tuple[str, str]], bytes]


@functools.cache
def _lab() -> tuple[ServiceLab, asyncio.AbstractEventLoop, dict[str, str]]:
    """Return a service with a simulated bisection, the loop that it answers in, and ids that it knows."""
    stack = ExitStack()
    atexit.register(stack.close)
    root = folder("service")
    simulated = Lab.build(root / "lab", num_commits=6, culprit=3)
    repo = _repository(root / "repo")
    lab = stack.enter_context(service_lab(root / "home", repo))
    name, _ = drive(simulated, lab.store)
    loop = asyncio.new_event_loop()
    stack.callback(loop.close)
    csrf = lab.app.state.parts.doorman._local_csrf
    return lab, loop, {"id": name, "key": lab.store.results(name)[0].key, "csrf": csrf}


def _repository(path: Path) -> Path:
    from tests.support.service import small_repo

    return small_repo(path).path


def _make(rng: random.Random) -> Case:
    is_page = rng.random() < 0.3
    path = rng.choice(PAGES if is_page else PATHS)
    posts = path in BODIES or path.endswith(("/cancel", "/submit", "/mark", "/login"))
    usual = "POST" if posts and (path != "/bisections" or rng.random() < 0.7) else "GET"
    method = usual if rng.random() < 0.9 else rng.choice(("GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "X"))
    query = rng.choice(QUERIES) if rng.random() < 0.5 else ""
    query = change_text(rng, query, QUERIES)[:3000] if rng.random() < 0.4 else query
    headers = [
        (name, change_text(rng, value, ["x"])[:2000] if rng.random() < 0.5 else value)
        for name, value in HEADERS
        if rng.random() < 0.08
    ]
    shown = path if is_page else API + path
    if rng.random() < 0.15:
        shown = change_text(rng, shown, [*PATHS, *PAGES])[:2000]
    body = b""
    if method == "POST":
        headers.append(("content-type", rng.choice(TYPES) if rng.random() < 0.9 else change_text(rng, TYPES[0], TYPES)[:200]))
        body = _body(rng, path)
    return method, shown, query, headers, body


def _body(rng: random.Random, path: str) -> bytes:
    if path not in BODIES:
        form = rng.choice(FORMS)
        return to_bytes(change_text(rng, form, FORMS) if rng.random() < 0.7 else form)
    value = rng.choice(BODIES[path])
    text = json_text(
        rng, change_value(rng, value, [SUBMISSION, CHECK]) if rng.random() < 0.85 else rng.choice((value, rng.choice(STRANGE)))
    )
    return to_bytes(change_text(rng, text, [text]) if rng.random() < 0.2 else text)


def _ask(case: Case) -> None:
    method, path, query, headers, body = case
    lab, loop, known = _lab()
    for name, value in known.items():
        path, query = path.replace(f"{{{name}}}", value), query.replace(f"{{{name}}}", value)
        body = body.replace(f"{{{name}}}".encode(), value.encode())
    status = loop.run_until_complete(_send(lab.app, method, path, query, headers, body))
    assert 200 <= status < 500, f"status {status}"


async def _send(app: Any, method: str, path: str, query: str, headers: list[tuple[str, str]], body: bytes) -> int:
    """Hand a request over and return the answer's status; a stream is left as soon as it has begun."""
    raw = to_bytes(path)
    sent = [("host", "127.0.0.1:8765"), ("origin", "http://127.0.0.1:8765"), *headers]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": raw.decode("utf-8", "replace"), "raw_path": quote(raw).encode(), "query_string": to_bytes(query),
        "root_path": "",
        "headers": [(name.encode(), to_bytes(value).replace(b"\n", b"").replace(b"\r", b"")) for name, value in sent],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8765),
    }  # fmt: skip
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    status = 0

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    await app(scope, receive, send)
    return status


TARGETS = (Target("service", _make, _ask, (), 0.8),)
