"""Markdown of reports: what others wrote is shown and does nothing; the parts, their order and their bounds."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bisect_train.report import render_markdown, render_stored_markdown, report_to_json
from bisect_train.report.markdown import HEADLINES
from bisect_train.report.markdown_text import LIMIT, NO_WIDTH, clean, code, code_block, fit, one_line, plain, table, tame, width
from tests.support.findings import HOSTILE
from tests.support.report_cases import (
    FakeSpace,
    commit_space,
    make_commits,
    make_failure,
    make_fingerprint,
    play,
    step_change,
)

OURS = {"h2", "p", "table", "thead", "tbody", "tr", "th", "td", "strong", "em", "ul", "li", "code", "pre", "details", "summary"}
CALLS = re.compile(r"@[\w-]|#\d|\bGH-\d|://|\bwww\.", re.IGNORECASE)
READER = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")

LETTERS = st.sampled_from(list("`|<>&@#\\*_[]()!~$:/-+=.1aB \t\n\x1b\u202e\udcff'\"{}")) | st.characters()
WORDS = st.sampled_from(["@name", "#12", "<b>", "</details>", "<!--", "-->", "http://x", "www.x", "GH-3", "| -- |", "```"])
TEXTS = st.lists(WORDS | LETTERS, max_size=40).map("".join)


class Page(HTMLParser):
    """The tags of a page, its text outside code, and all of its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: list[Any] = []
        self.comments: list[str] = []
        self.text = self.prose = ""
        self.codes: list[str] = []
        self._depth = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._depth += tag == "code"
        self.codes += [""] if tag == "code" else []

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "code"

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._depth:
            self.codes[-1] += data
        else:
            self.prose += data


def read(markdown: str) -> Page:
    return Page(READER.render(markdown))


# ---- text of others -----------------------------------------------------------------------------------------------


@given(TEXTS)
def test_plain_text_is_shown_as_it_is_and_does_nothing(text: str) -> None:
    page = read(plain(text))
    assert page.tags <= {"p"} and page.comments == []
    assert page.text.replace(NO_WIDTH, "").strip() == one_line(text)
    assert not CALLS.search(page.prose)


@given(TEXTS)
def test_plain_text_in_a_table_stays_in_its_cell(text: str) -> None:
    html = READER.render(table(("one", "two"), [(plain(text), "end"), (code(text), "end")]))
    page = Page(html)
    assert html.count("<tr>") == 3 and html.count("<td>") == 4
    assert page.tags <= {"table", "thead", "tbody", "tr", "th", "td", "code"}


@given(TEXTS)
def test_code_span_and_block_hold_the_text_and_nothing_else(text: str) -> None:
    page = read(f"before {code(text)} after\n\n{code_block(text)}\n\nlast")
    assert page.tags <= {"p", "code", "pre"}
    span = [one_line(text, limit=200).replace("|", "¦")] if one_line(text) else []
    assert [item.strip("\n") for item in page.codes] == [*span, clean(text).rstrip().strip("\n")]
    assert page.prose.split() == ["before", "after", "last"]


@given(st.lists(TEXTS, max_size=6), st.integers(200, 600))
def test_fitted_text_is_never_longer_than_its_limit(blocks: list[str], limit: int) -> None:
    text = fit([plain(block) for block in blocks], "*by us*", limit=limit)
    assert width(text) <= limit
    assert text.endswith("*by us*")


def test_hostile_subject_is_tamed_for_chats_too() -> None:
    said = tame(HOSTILE)
    assert not CALLS.search(said)
    assert "<!channel" not in said and "<@U123" not in said and "\x1b" not in said and "\u202e" not in said and "\n" not in said


def test_ordinary_text_needs_no_escapes() -> None:
    said = 'worse: 2.9999 (sd 0.023, 1 run), +0.4; see optim/lr.py: line 3 - it\'s "0.1" {x}'
    assert plain(said) == said


def test_text_with_another_language_and_emoji_stays() -> None:
    assert plain("Größe 模型 🚀") == "Größe 模型 🚀"


# ---- reports ------------------------------------------------------------------------------------------------------


def evil_report() -> Any:
    return play(step_change(13), FakeSpace(make_commits(24, titles={13: HOSTILE, 12: HOSTILE}))).report()


def test_report_with_a_hostile_subject_holds_only_our_tags_and_calls_nobody() -> None:
    page = read(render_markdown(evil_report()))
    assert page.tags <= OURS and page.comments == []
    assert [item for item in page.attributes if item[1] not in ("class", "style")] == []  # of code blocks and table columns
    assert not CALLS.search(page.prose)
    assert "torvalds" in page.prose


def test_report_says_verdict_effect_proof_cost_and_how_to_reproduce() -> None:
    report = play(step_change(13), commit_space()).report()
    text = render_markdown(report)
    page = read(text)
    order = ["Found the culprit", "makes loss worse", "before it", "How sure", "How to reproduce it by hand", "The proof"]
    places = [page.text.index(words) for words in order]
    assert places == sorted(places)
    assert "2.9999 (sd 0.023, 1 run)" in page.text and "+0.4" in page.text and "100 %" in page.text
    assert f"git checkout --detach {report.culprits[0].changes[0].id}" in page.text
    assert f"{report.cost.probes} probes run" in page.text
    assert text.index("<details>") > text.index("How sure")


def test_effect_is_told_with_its_unit_its_spread_and_its_runs() -> None:
    data = report_to_json(play(step_change(13), commit_space()).report())
    (culprit,) = data["culprits"]
    effect = {**culprit["effect"], "unit": "nats", "good_sd": 0.0213, "bad_sd": None, "num_good": 5, "share": 0.5}
    effect |= {"share_low": 0.4, "share_high": 0.61}
    page = read(render_stored_markdown({**data, "culprits": [{**culprit, "effect": effect}]}))
    assert "2.9999 nats (sd 0.021, 5 runs)" in page.text and "3.3999 nats (no spread known, 1 run)" in page.text
    assert "+0.4 nats" in page.text and "50.0 % (40 to 61 %)" in page.text


def test_report_of_a_crash_tells_its_triage() -> None:
    def behave(point: Any, seed: int, repeat: int) -> Any:
        return make_failure("RuntimeError: boom", steps=3, seed=seed) if point.holds(13) else make_fingerprint(3.0, seed=seed)

    report = play(behave, commit_space()).report()
    page = read(render_markdown(report))
    assert f"What it did to the run: {str(report.triage.category).replace('_', ' ')}" in page.text
    assert "share of runs" in page.text


def test_stored_report_says_the_same_without_the_sentences_that_are_not_stored() -> None:
    report = play(step_change(13), commit_space()).report()
    stored, full = render_stored_markdown(report_to_json(report)), render_markdown(report)
    assert "## Found the culprit" in stored and report.summary.split(":")[0] in stored
    assert "How sure" in full and "How sure" not in stored


@pytest.mark.parametrize("status", sorted(HEADLINES))
def test_stored_report_of_each_status_has_a_headline(status: str) -> None:
    data = report_to_json(play(step_change(13), commit_space()).report())
    text = render_stored_markdown({**data, "status": status, "culprits": []})
    assert not text.startswith("## Answer")


def test_report_too_long_for_github_is_cut_at_a_part() -> None:
    report = evil_report()
    long = replace(report, explanation=(HOSTILE * 500,) * 20, warnings=("w" * 5000,) * 50, log_tail="x\n" * 40_000)
    for limit in (LIMIT, 3000):
        text = render_markdown(long, limit=limit)
        assert width(text) <= limit
        assert text.endswith("by bisect-train*")
        assert text.count("<details>") == text.count("</details>")
    assert "left out: too long" in text


def test_candidates_are_listed_as_unproved() -> None:
    data = report_to_json(play(step_change(13), commit_space()).report())
    candidates = [{"kind": "commit", "id": "ab" * 20, "title": HOSTILE, "probability": 0.5}] * 14
    page = read(render_stored_markdown({**data, "status": "candidates", "culprits": [], "candidates": candidates}))
    assert "Nothing is proved" in page.text and "and 4 more in report.json" in page.text
    assert not CALLS.search(page.prose)
