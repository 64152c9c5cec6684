"""Every page in a browser, light and dark, wide and on a phone: accessible, no wider than its window, drawn, silent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.browser.axe import assert_accessible
from tests.browser.conftest import PHONE, WIDE, OpenPage
from tests.support.page_lab import PageLab, make_app, serving
from tests.support.page_samples import PairLab, RankLab
from tests.support.simulated_bisection import Lab, limits

LOOKS = [("light", WIDE), ("dark", WIDE), ("light", PHONE)]


@dataclass(frozen=True)
class Shown:
    """A bisection on a page of its own service."""

    pages: PageLab
    name: str
    address: str


@contextmanager
def _showing(pages: PageLab, **limited: Any) -> Iterator[Shown]:
    question = pages.lab.question(**limited)
    name = pages.store.create(question.to_json(), title="what made it worse?")
    pages.drive(name)
    with serving(make_app(pages)) as address:
        yield Shown(pages, name, address)
    pages.store.close()


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Shown]]:
    """Return a fixture: four ranks with triage, a pair, and candidates that can go on."""
    bases = {name: Lab.build(tmp_path_factory.mktemp(name), num_commits=10, culprit=7) for name in ("ranks", "pair", "open")}
    labs = {name: (base.repo, base.home, base.commits, base.culprit) for name, base in bases.items()}
    with ExitStack() as stack:
        yield {
            "ranks": stack.enter_context(_showing(PageLab.create(RankLab(*labs["ranks"])))),
            "pair": stack.enter_context(_showing(PageLab.create(PairLab(*labs["pair"])))),
            "open": stack.enter_context(_showing(PageLab.create(bases["open"]), limits=limits(max_probes=10))),
        }


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_pages_of_a_finished_bisection(open_page: OpenPage, solved: tuple[PageLab, str, str], scheme: str, width: int) -> None:
    pages, name, address = solved
    keys = [probe.key for probe in pages.store.results(name)]
    watched = open_page(address, scheme=scheme, width=width)
    inner = ["", "/change/9", "/changes", "/probes", f"/probe/{keys[0]}", f"/compare?a={keys[0]}&b={keys[1]}"]
    for path in ["/", *(f"/b/{name}{place}" for place in inner)]:
        watched.go(path)
        assert watched.overflow == 0, path
        assert_accessible(watched.page, path)
    background = watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(13, 17, 23)" if scheme == "dark" else "rgb(255, 255, 255)")


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_ranks_pairs_and_candidates(open_page: OpenPage, gallery: dict[str, Shown], scheme: str, width: int) -> None:
    for what, shown in gallery.items():
        watched = open_page(shown.address, scheme=scheme, width=width)
        watched.go(f"/b/{shown.name}")
        assert watched.overflow == 0, what
        assert_accessible(watched.page, what)


def test_page_with_ranks_has_their_curves_and_triage(open_page: OpenPage, gallery: dict[str, Shown]) -> None:
    shown = gallery["ranks"]
    watched = open_page(shown.address)
    watched.go(f"/b/{shown.name}")
    page = watched.page
    assert page.locator("#fig-rank-losses .scatterlayer .trace").count() == 8
    assert page.locator("#fig-rank-losses .legendtext").count() == 4
    assert page.get_by_role("heading", name="What it did to the run").is_visible()
    keys = [probe.key for probe in shown.pages.store.results(shown.name)]
    watched.go(f"/b/{shown.name}/compare?a={keys[0]}&b={keys[1]}")
    assert page.get_by_role("heading", name="Rank by rank").is_visible()


def test_page_of_a_pair_has_its_two_by_two_table(open_page: OpenPage, gallery: dict[str, Shown]) -> None:
    watched = open_page(gallery["pair"].address)
    watched.go(f"/b/{gallery['pair'].name}")
    cells = watched.page.locator("table.pair td").all_text_contents()
    assert [text[:2] for text in cells[1:]] == ["1.", "1.", "1.", "2."]


def test_candidates_can_go_on_and_a_refusal_is_a_page(open_page: OpenPage, gallery: dict[str, Shown]) -> None:
    watched = open_page(gallery["open"].address)
    watched.go(f"/b/{gallery['open'].name}")
    assert watched.page.get_by_role("button", name="Resume").is_visible()
    assert watched.page.get_by_role("heading", name="Candidates").is_visible()
    watched.go("/b/ffffffff")
    assert_accessible(watched.page, "refused")
    watched.complaints.remove("console: Failed to load resource: the server responded with a status of 404 (Not Found)")


def test_scheme_that_changes_is_followed_by_the_figures(open_page: OpenPage, solved: tuple[PageLab, str, str]) -> None:
    _, name, address = solved
    watched = open_page(address)
    watched.go(f"/b/{name}")
    grid = "getComputedStyle(document.querySelector('#fig-curves .gridlayer path')).stroke"
    before = watched.page.evaluate(grid)
    watched.page.emulate_media(color_scheme="dark")
    watched.page.wait_for_function(f"before => {grid} !== before", arg=before)


def test_nights_are_marked_by_shape_and_in_words(open_page: OpenPage, solved: tuple[PageLab, str, str]) -> None:
    watched = open_page(solved[2])
    watched.go("/")
    legend = watched.page.locator("#fig-nights-0 .legendtext").all_text_contents()
    assert legend == ["clean", "regression", "drift", "intended change", "fixed"]
    marks = watched.page.locator("#fig-nights-0 .scatterlayer .points path").evaluate_all(
        "all => all.map(m => m.getAttribute('d'))"
    )
    assert len({mark.split("A")[0][:12] if "A" in mark else mark for mark in marks}) >= 5
    watched.page.get_by_text("The nights as a table").click()
    assert watched.page.get_by_role("cell", name="cannot be tested").first.is_visible()


def test_inline_script_is_refused_by_the_browser(open_page: OpenPage, solved: tuple[PageLab, str, str]) -> None:
    watched = open_page(solved[2])
    watched.go("/")
    script = "const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s)"
    button = "const b = document.createElement('button'); b.setAttribute('onclick', 'window.ran = 2'); document.body.append(b)"
    watched.page.evaluate(f"(() => {{ {script}; {button}; b.click() }})()")
    assert watched.page.evaluate("window.ran") is None
    assert len(watched.complaints) == 2
    assert all("Content Security Policy" in text for text in watched.complaints)
    watched.complaints.clear()
