"""Messages about findings, the addresses that they go to, and what those answer."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from bisect_train.core.errors import InputError, NotDelivered
from bisect_train.nightly.finding import Finding, FindingState, FoundChange
from bisect_train.report.markdown import render_stored_markdown
from bisect_train.report.markdown_text import code, code_block, plain, tame
from bisect_train.report.wire import clean_json
from bisect_train.telling.addresses import open_messenger
from bisect_train.telling.composing import compose
from bisect_train.telling.github_errors import translate
from bisect_train.telling.patience import TryLater, read_retry_after
from tests.fuzz.engine import Target
from tests.fuzz.text_changes import change_text
from tests.fuzz.value_changes import change_value
from tests.support.findings import HOSTILE, make_finding

WORDS = (
    HOSTILE,
    "loss is worse",
    "fix #12 @you",
    "https://h/x",
    "a" * 40,
    "| a | b |",
    "```\nx\n```",
    "\x1b]8;;http://e\x07x",
    "<!-- x -->",
)
REPORT: dict[str, Any] = {
    "schema": 1,
    "id": "65f0a1b2",
    "status": "isolated",
    "summary": "it is the ninth",
    "kind_of_change": "worse",
    "ends": {
        "good": {"revision": "a" * 40, "mean": 1.0, "sd": 0.1, "num": 5},
        "bad": {"revision": "b" * 40, "mean": 2.0, "sd": None, "num": 5},
    },
    "culprits": [
        {
            "changes": [{"kind": "commit", "id": "c" * 40, "title": HOSTILE}],
            "probability": 0.99,
            "effect": None,
            "conditions": [],
        }
    ],
    "candidates": [],
    "triage": {"category": None, "evidence": ["x"], "look_first": []},
    "probe": {"steps": 40, "ranks": 1, "rung": "40 steps", "covers": ["x"], "cannot_see": []},
    "cost": {"probes": 10, "rounds": 2, "steps": 400, "cached": 0, "wall_s": 3.0, "gpu_s": 0.0},
    "probes": [],
    "reproduce": ["bisect-train run"],
    "warnings": [HOSTILE],
}


def _make_finding(rng: random.Random) -> list[str]:
    return [change_text(rng, rng.choice(WORDS), WORDS) for _ in range(9)]


def _tell(case: list[str]) -> None:
    """Whatever is in a finding's texts, every message of it is made, bounded, and of one line where it must be."""
    title, summary, detail, change, author, words, address, repo, warning = case
    finding: Finding = make_finding(
        title=title, summary=summary, details=(detail,), repo=repo, links=((words, address),),
        culprits=(FoundChange("commit", "c" * 40, change, author, author), FoundChange("config", change, words)),
        report={**REPORT, "summary": summary, "warnings": [warning], "reproduce": [detail]},
    )  # fmt: skip
    for told in (finding, replace(finding, report=None, state=FindingState.CLOSED)):
        message = compose(told, mention_authors=True)
        assert len(message.markdown.encode("utf-16-le", "surrogatepass")) // 2 <= 60_000
        assert "\n" not in message.title and len(message.title) <= 320
        for text in (message.title, message.text, message.markdown):
            text.encode()  # no lone surrogate comes through
            assert "\x1b" not in text and "\0" not in text
        json.dumps(clean_json(message.data), allow_nan=False).encode()


def _make_text(rng: random.Random) -> str:
    return change_text(rng, rng.choice(WORDS), WORDS)


def _write_text(text: str) -> None:
    for write in (tame, plain, code):
        line = write(text)
        assert "\n" not in line and "\x1b" not in line
        line.encode()
    code_block(text).encode()


def _make_report(rng: random.Random) -> Any:
    return change_value(rng, REPORT, [REPORT])


def _write_report(report: Any) -> None:
    """A report of another version, of which only the texts may differ."""
    found = report if isinstance(report, dict) else {}
    texts = {name: value for name, value in found.items() if isinstance(value, str) and isinstance(REPORT.get(name, ""), str)}
    kept = {**REPORT, **texts}
    assert render_stored_markdown(kept)


ADDRESSES = (
    "https://h.example/x?a=1", "github-issue:a/b", "github-comment:a/b#12", "github-check:a/b@" + "a" * 40, "mailto://u@h.example",
    "env:NAME", "slack://a/b/c", "http://u:p@h/", "https://hooks.slack.com/services/T0/B0/x", "discord://x/y",
)  # fmt: skip


def _make_address(rng: random.Random) -> tuple[str, bool]:
    return change_text(rng, rng.choice(ADDRESSES), ADDRESSES), rng.random() < 0.5


def _open_address(case: tuple[str, bool]) -> None:
    text, is_named = case
    environ = {"NAME": text, "GITHUB_TOKEN": "t"}
    open_messenger("env:NAME" if is_named else text, environ=environ)


HEADERS = ("120", "Wed, 21 Oct 2026 07:28:00 GMT", "0", "1e3", "²", "-1", "99999999999999999999")


def _make_answer(rng: random.Random) -> tuple[int, dict[str, str], Any]:
    names = ("Retry-After", "X-RateLimit-Reset", "X-RateLimit-Remaining")
    headers = {name: change_text(rng, rng.choice(HEADERS), HEADERS) if rng.random() < 0.7 else "0" for name in names}
    data = change_value(rng, {"message": rng.choice(("rate limit", HOSTILE)), "errors": [{"code": "x"}]})
    return rng.choice((200, 401, 403, 404, 422, 429, 500, 503)), headers, data


def _read_answer(case: tuple[int, dict[str, str], Any]) -> None:
    status, headers, data = case
    read_retry_after(headers["Retry-After"], now_s=1.7e9)
    error = translate(SimpleNamespace(status=status, headers=headers, data=data), place="GitHub", now_s=1.7e9)  # type: ignore[arg-type]
    assert isinstance(error, (TryLater, NotDelivered))


TARGETS = (
    Target("finding", _make_finding, _tell, (), 1.0),
    Target("markdown", _make_text, _write_text, (), 5.0),
    Target("stored-report", _make_report, _write_report, (), 2.0),
    Target("tell-address", _make_address, _open_address, (InputError,), 1.0),
    Target("tell-answer", _make_answer, _read_answer, (), 12.0),
)
