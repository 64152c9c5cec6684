"""The form of the page: a run and a check, read and refused as the REST interface does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.service import BASE, ServiceLab, service_lab, small_repo


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceLab]:
    folder = tmp_path_factory.mktemp("form")
    recipe = folder / "conf.yaml"
    recipe.write_text("command: [python, train.py, --config, '{config}']\nshrink: {steps: [5]}\n")
    with service_lab(folder / "home", small_repo(folder / "repo").path, recipes=(("conf", recipe),)) as made:
        yield made


def send(lab: ServiceLab, **fields: str) -> httpx.Response:
    """Send the form as a browser does, with its token."""
    page = lab.call("GET", "/").text
    token = re.search(r'name="csrf" value="([^"]+)"', page)
    assert token is not None
    filled = {"csrf": token.group(1), "repository": "demo", **fields}
    return lab.call("POST", "/submit", data=filled, headers={"Origin": BASE})


def question_of(lab: ServiceLab, answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 303, answer.text
    return lab.store.load(answer.headers["Location"].rsplit("/", 1)[1]).question


def test_form_offers_a_run_and_a_check(lab: ServiceLab) -> None:
    page = lab.call("GET", "/").text
    assert re.findall(r'type="radio" name="kind" value="(\w+)"', page) == ["run", "check"]
    for name in ("config", "other_config", "settings"):
        assert f'name="{name}"' in page


def test_config_against_config_and_against_changed_keys(lab: ServiceLab) -> None:
    check = {"kind": "check", "recipe": "conf", "config": " conf/a.yaml ", "good": "", "bad": ""}
    against = question_of(lab, send(lab, **check, other_config="conf/b.yaml"))
    assert against["kind"] == "check"
    assert (against["good_config"]["path"], against["bad_config"]["path"]) == ("conf/a.yaml", "conf/b.yaml")
    changed = question_of(lab, send(lab, **check, settings="lr=4 seed='5'"))
    assert changed["bad_config"]["patch"]["text"] == "lr: 4\nseed: 5\n"


def test_check_of_the_code_and_a_run(lab: ServiceLab) -> None:
    assert question_of(lab, send(lab, kind="check", good="old"))["kind"] == "check"
    assert question_of(lab, send(lab, good="old", steps="7"))["rung"]["steps"] == 7


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "run"}, "Name a good revision"),
        ({}, "Name a good revision"),
        ({"kind": "check"}, "A check of the code needs one good revision"),
        ({"kind": "check", "config": "conf/a.yaml"}, "needs another config file (other_config) or keys to change"),
        ({"kind": "check", "settings": "lr=1"}, "change a config, and none was named"),
        ({"kind": "check", "config": "../x.yaml", "settings": "lr=1"}, "no path inside the repository"),
        ({"kind": "check", "config": "/etc/passwd", "settings": "lr=1"}, "A config file is a path in the repository"),
        ({"kind": "check", "config": "conf/gone.yaml", "settings": "lr=1"}, "has no config file"),
        ({"kind": "check", "config": "conf/a.yaml", "settings": "lr"}, "Keys to change are written as in lr=3e-4"),
        ({"kind": "check", "config": "conf/a.yaml", "settings": "lr='1"}, "cannot be read"),
        ({"kind": "probe", "good": "old"}, "Kind: "),
        ({"kind": "run", "good": "--x"}, "A revision is a commit, tag or branch"),
        ({"kind": "run", "good": "old", "settings": "lr=1"}, "are for a check"),
    ],
)
def test_form_that_cannot_be_asked_says_why_and_stores_nothing(lab: ServiceLab, fields: dict[str, str], said: str) -> None:
    num_stored = len(lab.store.list())
    answer = send(lab, recipe="conf" if "config" in fields else "", **fields)
    assert answer.status_code == 400 and said in answer.text and "Value error" not in answer.text
    assert len(lab.store.list()) == num_stored
