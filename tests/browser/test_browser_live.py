"""A bisection from its form to its verdict in a browser: submitted, watched, cancelled, resumed, marked, compared."""

from __future__ import annotations

import re
from typing import Any

from tests.browser.axe import assert_accessible
from tests.browser.conftest import OpenPage, Watched
from tests.support.page_lab import PageLab


def _submit(watched: Watched, pages: PageLab) -> str:
    """Fill in the form; return the id of the bisection whose page opens."""
    page = watched.page
    watched.go("/")
    page.locator("select[name=repository]").select_option("nano")
    page.get_by_label("Good revision").fill(pages.lab.commits[0][:10])
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile(r"/b/[0-9a-f]{8}$"))
    return str(page.url)[-8:]


def _num_left(page: Any) -> int:
    return int(page.locator(".strip .cell.left").count())


def test_submit_and_watch_to_the_verdict_without_loading_again(open_page: OpenPage, fresh: tuple[PageLab, str]) -> None:
    pages, address = fresh
    watched = open_page(address)
    name = _submit(watched, pages)
    page = watched.page
    page.evaluate("window.mark = 'the same page'")
    page.get_by_text("watching it live").wait_for()
    page.locator("#flight-rows tr").first.wait_for()
    page.locator("#flight-plot .scatterlayer .trace").first.wait_for()
    before = _num_left(page)
    assert_accessible(page, "while it runs")
    page.locator(".strip .cell.v-good").first.wait_for(state="attached")
    page.wait_for_function("n => document.querySelectorAll('.strip .cell.left').length < n", arg=before)
    page.get_by_role("heading", name="Found the culprit").wait_for()
    assert page.evaluate("window.mark") == "the same page"
    assert page.get_by_role("status").filter(has_text="Found the culprit").count() == 1, "said to a screen reader, too"
    named = page.locator(".cell.named")
    assert named.count() == 1
    assert f"commit number {pages.lab.culprit}" in named.get_attribute("aria-label")
    page.locator("#flight").wait_for(state="hidden")
    page.get_by_role("button", name="Cancel").wait_for(state="detached")
    assert f"+part {pages.lab.culprit} new" in page.locator("pre.diff").first.text_content()
    assert page.title().startswith("Found the culprit")
    assert pages.users[name] == "ada"
    watched.go("/?status=isolated")
    assert page.locator(".card").count() == 1


def test_cancel_mark_and_resume(open_page: OpenPage, fresh: tuple[PageLab, str]) -> None:
    pages, address = fresh
    pages.pace_s = 0.3
    watched = open_page(address)
    name = _submit(watched, pages)
    page = watched.page
    page.locator("#flight-rows tr").first.wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Resume").wait_for()
    assert page.locator(".status").first.text_content() == "cancelled"
    assert not page.locator("#flight").is_visible()
    page.get_by_label("Commit or key").fill(pages.lab.commits[3])
    page.locator("select[name=verdict]").select_option("untestable")
    page.get_by_role("button", name="Mark").click()
    page.locator("#change-3.v-untestable").wait_for()
    pages.pace_s = 0.0
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("heading", name="Found the culprit").wait_for()
    assert "called untestable by hand" in page.locator("#change-3").get_attribute("aria-label")
    assert pages.store.load(name).status == "finished"


def test_open_parts_and_focus_outlive_an_update(open_page: OpenPage, fresh: tuple[PageLab, str]) -> None:
    pages, address = fresh
    watched = open_page(address)
    _submit(watched, pages)
    page = watched.page
    page.locator("#strip-table summary").click()
    page.locator("#strip").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.get_by_role("heading", name="Found the culprit").wait_for()
    page.locator(".cell.named").wait_for()
    assert page.locator("#strip-table").get_attribute("open") is not None
    assert page.evaluate("document.activeElement.id") == "strip"
    assert page.locator("#strip").get_attribute("aria-activedescendant") == "change-2"


def test_two_probes_are_laid_over_one_another(open_page: OpenPage, solved: tuple[PageLab, str, str]) -> None:
    _, name, address = solved
    watched = open_page(address)
    watched.go(f"/b/{name}")
    page = watched.page
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("heading", name="Two probes over one another").wait_for()
    watched.settle()
    said = page.locator(".verdict .summary").text_content()
    assert said.startswith("On the same seed, A (good end, seed 0) and B (bad end, seed 0) first differ at step 0")
    assert page.locator("#fig-pair .scatterlayer .trace").count() == 2
    assert "first difference" in page.locator("tr.differs").text_content()
    page.get_by_label("Probe B").select_option(index=2)
    page.get_by_role("button", name="Compare").click()
    page.wait_for_url(re.compile(r"compare\?a=.*&b="))
    page.get_by_role("link", name=re.compile("good end, seed 0")).click()
    page.get_by_role("heading", name="The end of its output").or_(
        page.get_by_role("heading", name="Fingerprint")
    ).first.wait_for()


def test_form_that_is_refused_says_why(open_page: OpenPage, fresh: tuple[PageLab, str]) -> None:
    _, address = fresh
    watched = open_page(address)
    watched.go("/")
    page = watched.page
    page.get_by_label("Good revision").fill("no-such-revision")
    page.get_by_role("button", name="Submit").click()
    page.get_by_role("heading", name="That could not be done").wait_for()
    assert "no-such-revision" in page.locator(".verdict").text_content()
    assert watched.complaints == ["console: Failed to load resource: the server responded with a status of 400 (Bad Request)"]
    watched.complaints.clear()
