"""A message of several bisections: the same key in every place, another one for what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bisect_train.cli import telling
from bisect_train.cli.desk import Desk
from bisect_train.core.errors import NotDelivered
from bisect_train.nightly.finding import FindingState
from bisect_train.report import ReportData
from bisect_train.store.home import open_store
from bisect_train.telling import Message, Receipt
from tests.support.findings import make_finding

PLACES = ("https://one.example/hook", "https://two.example/hook")


class Hooks:
    """Two webhooks that drop a key that they have, as docs/telling.md asks them to."""

    def __init__(self) -> None:
        self.shown: dict[str, list[str]] = {place: [] for place in PLACES}
        self.keys: dict[str, list[str]] = {place: [] for place in PLACES}
        self.down = ""

    def open(self, address: str, *, environ: object) -> Hook:
        return Hook(self, address)


class Hook:
    can_edit = True

    def __init__(self, hooks: Hooks, name: str) -> None:
        self.hooks = hooks
        self.name = name

    def send(self, message: Message, *, earlier: Receipt | None = None) -> Receipt:
        if self.name == self.hooks.down:
            raise NotDelivered("it is down")
        if message.key not in self.hooks.keys[self.name]:
            self.hooks.keys[self.name].append(message.key)
            self.hooks.shown[self.name].append(message.data["summary"])
        return Receipt("edited" if earlier else "sent")


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Hooks:
    made = Hooks()
    monkeypatch.setattr(telling, "open_messenger", made.open)
    return made


@pytest.fixture
def tell(tmp_path: Path, hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], telling.Told]]:
    store = open_store(tmp_path)
    desk = Desk(tmp_path, store)

    def told(summary: str) -> telling.Told:
        bisection = store.create({"kind": "run", "settings": {"gpus": 0}}, title="x")
        is_over = summary == "no worse"
        finding = make_finding(id="pull-request-12", revision=1, summary=summary, bisection=bisection)
        finding = replace(finding, state=FindingState.CLOSED if is_over else FindingState.OPEN)
        monkeypatch.setattr(telling, "finding_of", lambda report, **more: finding)
        report = ReportData.__new__(ReportData)
        object.__setattr__(report, "id", bisection)
        return telling.tell_report(desk, report, telling.Telling(PLACES, "pull-request-12"))

    yield told
    store.close()


def test_message_that_comes_back_is_not_dropped(tell: Callable[[str], telling.Told], hooks: Hooks) -> None:
    pushes = ["A is worse", "no worse", "C is worse", "no worse", "A is worse"]
    for summary in pushes:
        assert tell(summary).is_complete
    assert hooks.shown == dict.fromkeys(PLACES, pushes)
    assert hooks.keys[PLACES[0]] == hooks.keys[PLACES[1]] and len(set(hooks.keys[PLACES[0]])) == len(pushes)


def test_place_that_was_down_gets_the_key_that_the_other_one_has(tell: Callable[[str], telling.Told], hooks: Hooks) -> None:
    tell("A is worse")
    hooks.down = PLACES[1]
    assert not tell("no worse").is_complete
    hooks.down = ""
    again = tell("no worse")
    assert again.is_complete and "has this message already" in again.lines[0]
    assert hooks.keys[PLACES[0]] == hooks.keys[PLACES[1]] and len(hooks.keys[PLACES[0]]) == 2
