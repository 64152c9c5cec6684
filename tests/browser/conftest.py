"""A headless Chromium of the machine, and pages whose every complaint is a failure."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.needs import need
from tests.support.page_lab import PageLab, make_app, serving
from tests.support.page_samples import made_up_nights
from tests.support.simulated_bisection import Lab

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE, PHONE = 1100, 390


def find_chromium() -> str:
    """Return the browser's path; skips or fails where there is none."""
    named = os.environ.get("CHROMIUM")
    found = next(filter(None, (shutil.which(name) for name in ((named,) if named else NAMES))), None)
    return found or need("browser", "no Chromium on this machine: `apt-get install chromium`, or set CHROMIUM")


@pytest.fixture(scope="module")  # while it is open its loop runs in this thread: others that need one would fail
def browser() -> Iterator[Any]:
    path = find_chromium()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        need("browser", "playwright is not installed: `pip install playwright`")
    with sync_playwright() as started:
        # the address of a proxy, where there is one, is not for pages on this machine
        opened = started.chromium.launch(executable_path=path, args=list(FLAGS), env={**os.environ, "NO_PROXY": "*"})
        yield opened
        opened.close()


@dataclass
class Watched:
    """A page, its address, and everything that it complained about or asked elsewhere."""

    page: Any
    address: str
    complaints: list[str] = field(default_factory=list)

    def go(self, path: str) -> Any:
        """Open a page of the service and wait until its figures are drawn."""
        answer = self.page.goto(self.address + path)
        assert answer is not None
        self.settle()
        return answer

    def settle(self) -> None:
        """Wait until every figure that has something to show is drawn."""
        drawn = "[...document.querySelectorAll('.plot')].every(plot => plot.hidden || plot.querySelector('.main-svg'))"
        self.page.wait_for_function(f"() => {drawn}")

    @property
    def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return width


OpenPage = Callable[..., Watched]


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Opens pages; at the end no one may have complained, failed to load anything, or asked another address."""
    opened: list[tuple[Watched, Any]] = []

    def make(address: str, *, scheme: str = "light", width: int = WIDE) -> Watched:
        height = 844 if width == PHONE else 900
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=width == PHONE, reduced_motion="reduce"
        )
        context.set_default_timeout(60_000)
        page = context.new_page()
        watched = Watched(page, address)
        page.on("console", lambda said: _note(watched, said.type in ("error", "warning"), f"console: {said.text}"))
        page.on("pageerror", lambda error: _note(watched, True, f"error: {error}"))
        page.on("dialog", lambda dialog: (_note(watched, True, f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda sent: _note(watched, not sent.url.startswith((address, "data:")), f"asked {sent.url}"))
        # what a page still waits for when another one is opened is given up
        page.on("requestfailed", lambda sent: _note(watched, sent.failure != "net::ERR_ABORTED", f"failed: {sent.url}"))
        opened.append((watched, context))
        return watched

    yield make
    for watched, context in opened:
        context.close()
        assert watched.complaints == []


def _note(watched: Watched, is_wrong: bool, text: str) -> None:
    if is_wrong:
        watched.complaints.append(text)


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PageLab, str, str]]:
    """Pages over a finished bisection: backend, its id, and the address."""
    lab = Lab.build(tmp_path_factory.mktemp("solved"))
    pages = PageLab.create(lab)
    pages.nights = (made_up_nights(),)
    name = pages.store.create(lab.question().to_json(), title="what made nano worse?")
    pages.users[name] = "ada"
    pages.drive(name)
    with serving(make_app(pages)) as address:
        yield pages, name, address
    pages.store.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[tuple[PageLab, str]]:
    """Pages over an empty store, whose bisections run at a speed that can be watched: backend and address."""
    pages = PageLab.create(Lab.build(tmp_path), pace_s=0.08)
    with serving(make_app(pages)) as address:
        yield pages, address
        for name in pages.flights:
            pages.store.request_cancel(name)
        for thread in pages.threads:
            thread.join(20)
    pages.store.close()
