"""A small GitHub on loopback: issues, comments, check-runs in memory, and requests held to what the API's pages say.

A request with a wrong header, a missing or unknown field, or a value that is not allowed is refused with 4xx and noted in
`complaints`, so that a test sees it even where the client would try again. Source: docs.github.com/rest (version 2022-11-28),
pages "Issues", "Issue comments", "Check runs", "Commits".
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.receivers import Answer, serve

TOKEN = "ghp_thisIsTheToken0123456789"
REPO = "acme/trainer"
MAX_BODY = 65_536
CONCLUSIONS = ("action_required", "cancelled", "failure", "neutral", "success", "skipped", "timed_out")
SHA = r"[0-9a-f]{40}"


class Refused(Exception):
    """A request is refused: status, message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass
class FakeGithub:
    """Its state.

    Attributes:
        url: of its API.
        login: whose token it is; "" for the token of an app.
        can_label: whether the token may label issues.
        logins: GitHub's user of a commit, by commit.
        faults: answered first, one each, in place of what was asked; those with `after` only once the request was carried out.
        requests: method and path of each.
        complaints: what was wrong with requests.
    """

    url: str = ""
    login: str = "train-bot"
    can_label: bool = True
    logins: dict[str, str] = field(default_factory=dict)
    issues: dict[int, dict[str, Any]] = field(default_factory=dict)
    comments: dict[int, dict[str, Any]] = field(default_factory=dict)
    check_runs: dict[int, dict[str, Any]] = field(default_factory=dict)
    faults: list[Answer] = field(default_factory=list)
    lost_answers: list[Answer] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    page_size: int = 100

    @property
    def writes(self) -> list[str]:
        """Requests that change something."""
        return [text for text in self.requests if not text.startswith("GET")]

    def user(self) -> dict[str, Any]:
        """Who the token's user is."""
        kind = "User" if self.login else "Bot"
        return {"login": self.login or "workflow[bot]", "type": kind, "id": 7, "url": f"{self.url}/users/x"}

    def add_issue(self, body: str = "", *, title: str = "a pull request", user: dict[str, Any] | None = None) -> int:
        """Add an issue as somebody else would; return its number."""
        number = len(self.issues) + 1
        base = f"{self.url}/repos/{REPO}/issues/{number}"
        self.issues[number] = {
            "id": 1000 + number, "number": number, "title": title, "body": body, "state": "open", "state_reason": None,
            "labels": [], "url": base, "html_url": f"https://github.com/{REPO}/issues/{number}",
            "comments_url": f"{base}/comments", "user": user or {"login": "somebody", "type": "User", "id": 9},
        }  # fmt: skip
        return number

    def add_comment(self, number: int, body: str, *, user: dict[str, Any] | None = None) -> int:
        """Add a comment as somebody else would; return its id."""
        name = 5000 + len(self.comments)
        self.comments[name] = {
            "id": name, "body": body, "issue": number, "user": user or {"login": "somebody", "type": "User", "id": 9},
            "url": f"{self.url}/repos/{REPO}/issues/comments/{name}",
            "html_url": f"https://github.com/{REPO}/pull/{number}#issuecomment-{name}",
        }  # fmt: skip
        return name

    # ---- what it answers ------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        """Return status and JSON."""
        for pattern, verb, act in self._routes():
            found = re.fullmatch(pattern, path)
            if found and verb == method:
                return act(found, query, body)
        raise Refused(404, "Not Found")

    def _routes(self) -> list[tuple[str, str, Callable[[re.Match[str], dict[str, str], dict[str, Any]], tuple[int, Any]]]]:
        repo = f"/repos/{REPO}"
        return [
            ("/user", "GET", self._get_user),
            (repo, "GET", lambda *_: (200, {"full_name": REPO, "url": f"{self.url}{repo}", "name": "trainer"})),
            (f"{repo}/issues", "GET", self._list_issues),
            (f"{repo}/issues", "POST", self._create_issue),
            (rf"{repo}/issues/(\d+)", "GET", lambda found, *_: (200, self._issue(found))),
            (rf"{repo}/issues/(\d+)", "PATCH", self._edit_issue),
            (rf"{repo}/issues/(\d+)/comments", "GET", self._list_comments),
            (rf"{repo}/issues/(\d+)/comments", "POST", self._create_comment),
            (rf"{repo}/issues/comments/(\d+)", "PATCH", self._edit_comment),
            (rf"{repo}/commits/({SHA})", "GET", self._get_commit),
            (rf"{repo}/commits/({SHA})/check-runs", "GET", self._list_checks),
            (f"{repo}/check-runs", "POST", self._create_check),
            (rf"{repo}/check-runs/(\d+)", "PATCH", self._edit_check),
        ]

    def _get_user(self, *_: Any) -> tuple[int, Any]:
        if not self.login:
            raise Refused(403, "Resource not accessible by integration")
        return 200, self.user()

    def _issue(self, found: re.Match[str]) -> dict[str, Any]:
        if int(found[1]) not in self.issues:
            raise Refused(404, "Not Found")
        return self.issues[int(found[1])]

    def _list_issues(self, found: re.Match[str], query: dict[str, str], body: Any) -> tuple[int, Any]:
        if query.get("state") not in ("open", "closed", "all", None):
            raise Refused(422, "state")
        wanted = query.get("labels", "")
        listed = [item for item in self.issues.values() if not wanted or wanted in [label["name"] for label in item["labels"]]]
        return 200, listed[::-1]

    def _create_issue(self, found: re.Match[str], query: Any, body: dict[str, Any]) -> tuple[int, Any]:
        _check(body, required={"title": str}, optional={"body": str, "labels": list, "assignees": list})
        number = self.add_issue(body.get("body", ""), title=body["title"], user=self.user())
        if self.can_label:
            names = body.get("labels", [])
            self.issues[number]["labels"] = [{"name": name, "url": f"{self.url}/labels/{name}"} for name in names]
        return 201, self.issues[number]

    def _edit_issue(self, found: re.Match[str], query: Any, body: dict[str, Any]) -> tuple[int, Any]:
        issue = self._issue(found)
        _check(body, optional={"title": str, "body": str, "state": str, "state_reason": str, "labels": list})
        if body.get("state", "open") not in ("open", "closed"):
            raise Refused(422, "state")
        if body.get("state_reason", "completed") not in ("completed", "not_planned", "reopened", "duplicate"):
            raise Refused(422, "state_reason")
        issue.update(body)
        return 200, issue

    def _list_comments(self, found: re.Match[str], query: Any, body: Any) -> tuple[int, Any]:
        number = self._issue(found)["number"]
        return 200, [item for item in self.comments.values() if item["issue"] == number]

    def _create_comment(self, found: re.Match[str], query: Any, body: dict[str, Any]) -> tuple[int, Any]:
        _check(body, required={"body": str})
        return 201, self.comments[self.add_comment(self._issue(found)["number"], body["body"], user=self.user())]

    def _edit_comment(self, found: re.Match[str], query: Any, body: dict[str, Any]) -> tuple[int, Any]:
        _check(body, required={"body": str})
        comment = self.comments[int(found[1])]
        if comment["user"]["login"] != self.user()["login"]:
            raise Refused(403, "Must have admin rights to Repository.")
        comment["body"] = body["body"]
        return 200, comment

    def _get_commit(self, found: re.Match[str], *_: Any) -> tuple[int, Any]:
        login = self.logins.get(found[1])
        user = {"login": login, "type": "User", "id": 3, "url": f"{self.url}/users/{login}"} if login else None
        return 200, {"sha": found[1], "author": user, "url": f"{self.url}/repos/{REPO}/commits/{found[1]}"}

    def _list_checks(self, found: re.Match[str], query: dict[str, str], body: Any) -> tuple[int, Any]:
        if query.get("filter", "latest") not in ("latest", "all"):
            raise Refused(422, "filter")
        runs = [run for run in self.check_runs.values() if run["head_sha"] == found[1]]
        runs = [run for run in runs if query.get("check_name", run["name"]) == run["name"]]
        return 200, {"total_count": len(runs), "check_runs": runs}

    def _create_check(self, found: re.Match[str], query: Any, body: dict[str, Any]) -> tuple[int, Any]:
        if self.login:
            raise Refused(403, "You must authenticate via a GitHub App.")
        _check_run(body, required={"name": str, "head_sha": str})
        if not re.fullmatch(SHA, body["head_sha"]):
            raise Refused(422, "No commit found for SHA")
        name = 8000 + len(self.check_runs)
        base = {"id": name, "url": f"{self.url}/repos/{REPO}/check-runs/{name}", "html_url": f"https://github.com/runs/{name}"}
        self.check_runs[name] = {**body, **base}
        return 201, self.check_runs[name]

    def _edit_check(self, found: re.Match[str], query: Any, body: dict[str, Any]) -> tuple[int, Any]:
        _check_run(body, required={})
        self.check_runs[int(found[1])].update(body)
        return 200, self.check_runs[int(found[1])]


def _check(body: dict[str, Any], *, required: dict[str, type] | None = None, optional: dict[str, type] | None = None) -> None:
    """Raise Refused for a missing field, an unknown one, a wrong type, or a text that is too long."""
    known = {**(required or {}), **(optional or {})}
    for name in required or {}:
        if not body.get(name):
            raise Refused(422, f"{name}: missing_field")
    for name, value in body.items():
        if name not in known or not isinstance(value, known[name]):
            raise Refused(422, f"{name}: invalid")
        if name == "body" and len(value.encode("utf-16-le")) // 2 > MAX_BODY:
            raise Refused(422, f"body is too long (maximum is {MAX_BODY} characters)")
        if name == "title" and len(value) > 256:
            raise Refused(422, "title is too long (maximum is 256 characters)")


def _check_run(body: dict[str, Any], *, required: dict[str, type]) -> None:
    names = ("name", "head_sha", "details_url", "external_id", "status", "conclusion", "started_at", "completed_at")
    _check(body, required=required, optional={**dict.fromkeys(names, str), "output": dict})
    if body.get("status") == "completed" and body.get("conclusion") not in CONCLUSIONS:
        raise Refused(422, "conclusion")
    output = body.get("output")
    if output is not None and not (output.get("title") and output.get("summary") and len(output["summary"]) <= 65_535):
        raise Refused(422, "output")


# ---- the server ---------------------------------------------------------------------------------------------------


@contextmanager
def start_github(**more: Any) -> Iterator[FakeGithub]:
    """Start it, and stop it."""
    fake = FakeGithub(**more)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._do("GET")

        def do_POST(self) -> None:
            self._do("POST")

        def do_PATCH(self) -> None:
            self._do("PATCH")

        def _do(self, method: str) -> None:
            parts = urlsplit(self.path)
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fake.requests.append(f"{method} {parts.path}")
            if fake.faults:
                return self._send_fault(fake.faults.pop(0))
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            try:
                _check_headers(self.headers, method)
                status, data = fake.answer(method, parts.path, query, json.loads(raw) if raw else {})
            except Refused as error:
                if parts.path != "/user":  # who is asked for it finds out so that it is an app
                    fake.complaints.append(f"{method} {parts.path}: {error.status} {error.message}")
                return self._send(error.status, {"message": error.message}, {})
            if fake.lost_answers and method != "GET":
                return self._send_fault(fake.lost_answers.pop(0))
            return self._send(*_paged(status, data, query, f"{fake.url}{parts.path}", fake.page_size))

        def _send_fault(self, answer: Answer) -> None:
            time.sleep(answer.delay_s)
            said = "API rate limit exceeded" if answer.status in (403, 429) and answer.headers else "Server Error"
            self._send(answer.status, {"message": said}, answer.headers)

        def _send(self, status: int, data: Any, headers: dict[str, str]) -> None:
            body = json.dumps(data).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Type": "application/json", "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with serve(Handler) as url:
        fake.url = url
        yield fake


def _check_headers(headers: Any, method: str) -> None:
    if headers.get("Authorization") not in (f"token {TOKEN}", f"Bearer {TOKEN}"):
        raise Refused(401, "Bad credentials")
    if not headers.get("User-Agent"):
        raise Refused(403, "Request forbidden by administrative rules. Please make sure your request has a User-Agent header")
    if method != "GET" and not (headers.get("Content-Type") or "").startswith("application/json"):
        raise Refused(415, "Unsupported Media Type")


def _paged(status: int, data: Any, query: dict[str, str], url: str, page_size: int) -> tuple[int, Any, dict[str, str]]:
    """Return one page of a list, with the header that names the next."""
    if not isinstance(data, list):
        return status, data, {}
    size, page = min(int(query.get("per_page", 30)), page_size), int(query.get("page", 1))
    rest = "&".join(f"{name}={value}" for name, value in {**query, "page": str(page + 1)}.items())
    headers = {"Link": f'<{url}?{rest}>; rel="next"'} if len(data) > page * size else {}
    return status, data[(page - 1) * size : page * size], headers
