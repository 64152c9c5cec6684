"""The pages in the real service: a browser logs in with a token, submits to the queue, and takes back what waits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bisect_train.cli.serving import DeskBackend
from bisect_train.service.app import create_app
from bisect_train.service.settings import Settings
from bisect_train.store.home import open_store
from bisect_train.store.queue_contract import UserLimits
from tests.browser.conftest import OpenPage
from tests.support.page_lab import serving
from tests.support.simulated_bisection import Lab


@dataclass(frozen=True)
class Service:
    """A running service: where it is, a user's token, the good end."""

    address: str
    token: str
    good: str
    backend: DeskBackend


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    lab = Lab.build(tmp_path, num_commits=6, culprit=3)
    (lab.repo.path / "bisect-train.yaml").write_text("command: [python, train.py]\n")
    settings = Settings(home=lab.home, repositories=(("nano", lab.repo.path),))
    store = open_store(lab.home)
    backend = DeskBackend(lab.home, store, settings)
    token = backend.queue.add_user("anna", is_admin=False, limits=UserLimits())
    with serving(create_app(settings, backend)) as address:
        yield Service(address, token, lab.commits[0], backend)
    store.close()


def test_user_logs_in_submits_and_takes_it_back(open_page: OpenPage, service: Service) -> None:
    watched = open_page(service.address)
    page = watched.page
    watched.go("/")
    assert page.url.endswith("/login")
    page.get_by_label("Token").fill(service.token)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Bisections", exact=True).wait_for()
    assert page.locator(".who").text_content() == "anna"
    page.get_by_label("Good revision").fill(service.good)
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url(re.compile(r"/b/[0-9a-f]{8}$"))
    name = page.url[-8:]
    assert page.locator(".status").first.text_content() == "waits for its turn"
    assert "by anna" in page.locator(".verdict").first.text_content()
    watched.go("/")
    assert page.locator(".queue li").count() == 1
    watched.go(f"/b/{name}")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel").wait_for(state="detached")
    watched.go("/")
    page.get_by_text("Nothing waits.").wait_for()


def test_wrong_token_opens_nothing(open_page: OpenPage, service: Service) -> None:
    watched = open_page(service.address)
    page = watched.page
    watched.go("/")
    page.get_by_label("Token").fill("x" * 32)
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("Nobody has this token.").wait_for()
    watched.go("/")
    assert page.url.endswith("/login")
    watched.complaints.remove("console: Failed to load resource: the server responded with a status of 401 (Unauthorized)")
