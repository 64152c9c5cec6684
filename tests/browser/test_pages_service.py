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
from tests.browser.axe import assert_accessible
from tests.browser.conftest import PHONE, OpenPage, Watched
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
    lab.repo.commit({"a.yaml": "lr: 1\nseed: 2\n", "b.yaml": "lr: 3\nseed: 2\n"})
    recipe = tmp_path / "conf.yaml"
    recipe.write_text("command: [python, train.py, --config, '{config}']\n")
    settings = Settings(home=lab.home, repositories=(("nano", lab.repo.path),), recipes=(("conf", recipe),))
    store = open_store(lab.home)
    backend = DeskBackend(lab.home, store, settings)
    token = backend.queue.add_user("anna", is_admin=False, limits=UserLimits())
    with serving(create_app(settings, backend)) as address:
        yield Service(address, token, lab.commits[0], backend)
    store.close()


def log_in(watched: Watched, service: Service) -> None:
    page = watched.page
    watched.go("/")
    assert page.url.endswith("/login")
    page.get_by_label("Token").fill(service.token)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Bisections", exact=True).wait_for()
    page.wait_for_load_state("load")  # before its style sheet is there nothing is painted


def test_user_logs_in_submits_and_takes_it_back(open_page: OpenPage, service: Service) -> None:
    watched = open_page(service.address)
    page = watched.page
    log_in(watched, service)
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


def test_check_of_a_config_is_asked_for_by_keys_alone(open_page: OpenPage, service: Service) -> None:
    watched = open_page(service.address, width=PHONE)
    page = watched.page
    log_in(watched, service)
    is_there = "() => [...document.querySelectorAll('#ask [name=config]')].some(field => field.checkVisibility())"
    assert not page.evaluate(is_there), "not for a moment"
    page.wait_for_function("() => document.querySelector('#ask [name=good]').required")
    page.get_by_role("radio", name="Which change made training worse?").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate(is_there) and not page.get_by_label("Good revision").evaluate("field => field.required")
    assert page.get_by_role("group", name="The configs to check").is_visible()
    assert_accessible(page, "a check")
    assert watched.overflow == 0
    filled = {"recipe": "conf", "config": "a.yaml", "settings": "lr=4 seed=5"}
    for _ in range(12):
        page.keyboard.press("Tab")
        name = page.evaluate("document.activeElement.name")
        if name in filled:
            page.keyboard.type(filled.pop(name))
        if not filled:
            break
    assert filled == {}
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/b/[0-9a-f]{8}$"))
    asked = service.backend.store.load(page.url[-8:]).question
    ends = (asked["good_config"]["path"], asked["bad_config"]["path"])
    assert (asked["kind"], *ends) == ("check", "a.yaml", "a.yaml with lr=4, seed=5")
    page.go_back()
    page.wait_for_function(is_there)  # what the browser fills in again is shown again


def test_check_that_cannot_be_asked_says_what_is_missing(open_page: OpenPage, service: Service) -> None:
    watched = open_page(service.address)
    page = watched.page
    log_in(watched, service)
    page.get_by_label("Is this change").check()
    page.get_by_label("Config file", exact=True).fill("a.yaml")
    page.get_by_role("button", name="Submit").click()
    page.get_by_role("heading", name="That could not be done").wait_for()
    assert "needs another config file (other_config) or keys to change" in page.locator(".verdict").text_content()
    watched.complaints.clear()


def test_wrong_token_opens_nothing_and_the_login_page_can_be_used_by_everybody(open_page: OpenPage, service: Service) -> None:
    watched = open_page(service.address, width=PHONE)
    page = watched.page
    watched.go("/")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert_accessible(page, f"login, {scheme}")
    assert watched.overflow == 0
    page.get_by_label("Token").fill("x" * 32)
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("Nobody has this token.").wait_for()
    assert_accessible(page, "login, refused")
    watched.go("/")
    assert page.url.endswith("/login")
    watched.complaints.remove("console: Failed to load resource: the server responded with a status of 401 (Unauthorized)")
