"""Reports on what strangers wrote: the page has our tags only, the commands by hand are no one else's, secrets stay out."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from typing import Any

import pytest

from bisect_train.cli.terminal import SafeConsole
from bisect_train.core.changes import Change, ChangeKind
from bisect_train.core.errors import UnbuildableError
from bisect_train.core.secrets import HIDDEN
from bisect_train.report import render_html, render_markdown, render_text, report_to_json
from tests.support.findings import HOSTILE
from tests.support.report_cases import (
    FakeSpace,
    commit_space,
    config_space,
    make_commits,
    make_failure,
    make_fingerprint,
    make_question,
    play,
    step_change,
)

NASTY = (
    f"{HOSTILE} </script><script>alert(2)</script> \" onload=alert(3) ' javascript:alert(4) $(touch hit) `touch hit`; rm -rf ~"
)
SECRET = "hunter2horse"


class Page(HTMLParser):
    """The tags of a page, and whatever could run."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts = 0
        self.handlers: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.scripts += tag == "script"
        self.handlers += [name for name, value in attrs if name.startswith("on") or "javascript:" in str(value)]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_page_on_a_hostile_commit_runs_nothing_but_our_own() -> None:
    quiet = Page(render_html(play(step_change(13), commit_space()).report()))
    page = Page(render_html(play(step_change(13), FakeSpace(make_commits(24, titles={13: NASTY, 12: NASTY}))).report()))
    assert (page.scripts, page.tags, page.handlers) == (quiet.scripts, quiet.tags, [])
    assert "torvalds" in page.text and "\x1b" not in page.text and "\u202e" not in page.text


def test_page_on_a_hostile_log_shows_it_as_text() -> None:
    def behave(point: Any, seed: int, repeat: int) -> Any:
        return (
            make_failure(f"RuntimeError: {NASTY}", steps=3, seed=seed) if point.holds(13) else make_fingerprint(3.0, seed=seed)
        )

    page = Page(render_html(play(behave, commit_space()).report()))
    assert page.handlers == [] and "alert(2)" in page.text
    assert "img" not in page.tags and "\u202e" not in page.text


def words_of(line: str) -> list[str]:
    """Return a line as a shell splits it, comments left out."""
    return shlex.split(line, comments=True)


def test_commands_by_hand_hold_nothing_that_a_subject_or_an_error_says() -> None:
    space = FakeSpace(make_commits(24, titles={13: f"{NASTY}\ntouch hit", 12: NASTY}))
    lines = "\n".join(report_to_json(play(step_change(13), space).report())["reproduce"]).split("\n")
    assert not [word for line in lines for word in words_of(line) if "hit" in word or "alert" in word]


class Unbuilt(FakeSpace):
    """A space that cannot say how its states are made, in many lines."""

    def reproduce(self, point: Any) -> tuple[str, ...]:
        raise UnbuildableError("it does not build: error\ntouch hit\n$(touch hit)")


def test_error_of_a_build_stays_in_its_comment() -> None:
    report = play(step_change(13), Unbuilt(make_commits(24))).report()
    lines = "\n".join(report_to_json(report)["reproduce"]).split("\n")
    assert any("touch hit" in line for line in lines)
    assert not [word for line in lines for word in words_of(line) if "hit" in word]


def test_config_values_are_quoted_for_a_shell() -> None:
    space, question = config_space()
    hostile = Change(ChangeKind.CONFIG, "name", "name: a -> $(touch hit)\ntouch hit")
    space.changes = (hostile, *space.changes[1:])
    lines = "\n".join(report_to_json(play(step_change(1), space, question).report())["reproduce"]).split("\n")
    assert not [word for line in lines for word in words_of(line) if "hit" in word]


def forms(report: Any) -> str:
    """Return a report in all of its forms."""
    file = StringIO()
    SafeConsole(file=file, width=200).print(render_text(report))
    return "\n".join([file.getvalue(), render_html(report), render_markdown(report), str(report_to_json(report))])


@pytest.mark.parametrize(
    "said",
    [
        f"401 for url: https://hub.example/x?access_token={SECRET}",
        f"env: HF_TOKEN={SECRET}",
        f"cannot log in with --api-key {SECRET}",
        f'{{"headers": {{"Authorization": "Bearer {SECRET}"}}}}',
        f"https://me:{SECRET}@host/data cannot be read",
    ],
)
def test_secret_in_an_error_or_in_the_output_is_in_no_form_of_the_report(said: str) -> None:
    def behave(point: Any, seed: int, repeat: int) -> Any:
        if not point.holds(13):
            return make_fingerprint(3.0, seed=seed)
        failed = make_failure(f"RuntimeError: {said}", steps=3, seed=seed)
        return replace(failed, log_tail=f"loading\n{said}\n")

    shown = forms(play(behave, commit_space()).report())
    assert SECRET not in shown and HIDDEN in shown


def test_secret_in_the_command_is_in_no_form_of_the_report() -> None:
    command = ("python", "train.py", "--api-key", SECRET, f"--password={SECRET}")
    shown = forms(play(step_change(13), FakeSpace(make_commits(24), command=command), make_question(command=command)).report())
    assert SECRET not in shown and re.search(r"--api-key\S* .?\(hidden\)", shown)
