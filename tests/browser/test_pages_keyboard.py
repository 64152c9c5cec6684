"""The pages without a mouse, with a thousand changes and probes, and with text that was made to break them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import PHONE, WIDE, OpenPage
from tests.support.page_lab import PageLab, make_app, serving
from tests.support.page_samples import HOSTILE, hostile_pages, long_pages


def test_strip_is_walked_and_opened_by_keys(open_page: OpenPage, solved: tuple[PageLab, str, str]) -> None:
    pages, name, address = solved
    watched = open_page(address)
    watched.go(f"/b/{name}")
    page = watched.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "strip":
            break
    strip = page.locator("#strip")
    assert page.evaluate("document.activeElement.id") == "strip"
    assert strip.get_attribute("aria-activedescendant") == f"change-{pages.lab.culprit}", "the likeliest first"
    for key, number in (("Home", 1), ("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", 13), ("ArrowRight", 13)):
        page.keyboard.press(key)
        assert strip.get_attribute("aria-activedescendant") == f"change-{number}", key
        assert page.locator("[role=option][aria-selected=true]").count() == 1
    assert page.locator("#change-13").evaluate("cell => getComputedStyle(cell).outlineStyle") == "solid"
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.locator("#opened-title").wait_for()
    assert page.evaluate("document.activeElement.id") == "opened-title"
    assert page.locator("#opened-title").text_content().startswith("Change 1 of 13: ")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "strip"
    assert page.locator("#opened").inner_html() == ""


def test_everything_that_can_be_focused_shows_it(open_page: OpenPage, solved: tuple[PageLab, str, str]) -> None:
    _, name, address = solved
    watched = open_page(address)
    watched.go(f"/b/{name}")
    page, seen = watched.page, set()
    for _ in range(60):
        page.keyboard.press("Tab")
        what = page.evaluate("document.activeElement.outerHTML.slice(0, 120)")
        style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        if what in seen or what.startswith("<body"):
            break
        seen.add(what)
        assert style != "none", what
    assert len(seen) > 15


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    pages, name = long_pages(tmp_path_factory.mktemp("long"))
    with serving(make_app(pages)) as address:
        yield name, address


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_thousand_changes_and_probes_stay_usable(open_page: OpenPage, long: tuple[str, str], width: int) -> None:
    name, address = long
    watched = open_page(address, width=width)
    watched.go(f"/b/{name}")
    page = watched.page
    assert watched.overflow == 0
    assert page.locator(".cell").count() == 1000
    assert page.locator("#strip-table tbody tr").count() <= 200
    assert page.locator("table.probes tbody tr").count() == 20
    box = page.locator("#change-1000").bounding_box()
    assert box is not None
    assert box["width"] >= 7
    page.locator("#strip").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    for _ in range(30):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.locator("#opened-title").wait_for()
    assert "of 1000: " in page.locator("#opened-title").text_content()
    page.get_by_role("link", name="All 1000 probes").click()
    page.get_by_role("heading", name="1000 probes").wait_for()
    assert watched.overflow == 0
    assert page.locator("table.probes tbody tr").count() == 100
    page.get_by_role("link", name="Older").click()
    page.get_by_text("page 2 of 10").wait_for()


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_hostile_text_runs_nothing_and_breaks_nothing(open_page: OpenPage, tmp_path: Path, width: int) -> None:
    pages, name = hostile_pages(tmp_path)
    keys = [probe.key for probe in pages.store.results(name)]
    inner = ["", "/change/3", "/changes", "/probes", f"/probe/{keys[-1]}", f"/compare?a={keys[0]}&b={keys[-1]}"]
    with serving(make_app(pages)) as address:
        watched = open_page(address, width=width)
        page = watched.page
        for path in ["/", *(f"/b/{name}{place}" for place in inner)]:
            watched.go(path)
            assert page.evaluate("window.hacked") is None, path
            assert watched.overflow == 0, path
            assert page.locator("main img").count() == 0, path
            assert page.locator("a[href^='javascript']").count() == 0, path
            directions = "[...document.querySelectorAll('main *')].filter(e => getComputedStyle(e).direction === 'rtl').length"
            assert page.evaluate(directions) == 0, path
        watched.go(f"/b/{name}")
        page.locator("#strip").focus()
        page.keyboard.press("Home")
        for _ in range(len(HOSTILE) + 2):
            page.keyboard.press("ArrowRight")
            page.keyboard.press("Enter")
            page.locator("#opened-title").wait_for()
            page.keyboard.press("Escape")
        assert page.evaluate("window.hacked") is None
        assert HOSTILE[0] in page.locator("#strip-table").text_content()
        assert "safe\\u202etxt.exe" in page.locator("#strip-table").text_content()
        assert "\x1b" not in page.content()
    pages.store.close()
