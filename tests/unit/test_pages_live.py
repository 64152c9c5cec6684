"""What a watched page is told: everything that was stored, once for all who watch, and an end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request

from bisect_train.core.errors import InputError
from bisect_train.service.pages import live, routes
from bisect_train.service.pages.bisection_view import ViewCache
from bisect_train.service.pages.contract import Opened, RunInFlight
from bisect_train.service.pages.list_view import Shelf
from bisect_train.service.pages.live import Watch
from tests.support.page_lab import OpenDoor, PageLab, make_app, serving
from tests.support.simulated_bisection import Lab


class Counting(PageLab):
    """Counts how often a bisection is rebuilt; `held` is what runs."""

    num_opened = 0
    held: tuple[RunInFlight, ...] = ()

    def open(self, bisection_id: str) -> Opened:
        self.num_opened += 1
        return super().open(bisection_id)

    def in_flight(self, bisection_id: str) -> Sequence[RunInFlight] | None:
        return self.held


class NamedDoor(OpenDoor):
    """Lets everybody in under the name that they give."""

    def user_of(self, request: Request) -> str | None:
        return request.headers.get("x-user", "ada")


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    monkeypatch.setattr(live, "LOOK_S", 0.02)
    lab = Lab.build(tmp_path, num_commits=8, culprit=5)
    made = PageLab.create(lab)
    yield Counting(made.lab, made.store)
    made.store.close()


def _read(event: str) -> tuple[str, dict[str, object]]:
    kind, data = event.removesuffix("\n\n").split("\n")
    return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_stream_tells_what_runs_and_ends_with_the_bisection(pages: Counting) -> None:
    name = pages.store.create(pages.lab.question().to_json(), title="watched")
    watch = Watch(pages, ViewCache(pages))

    async def follow() -> list[tuple[str, dict[str, object]]]:
        told = []
        async for event in watch.stream(name):
            if not event.startswith("retry"):
                told.append(_read(event))
            if told and told[-1] == ("flight", {**told[-1][1], "rows": []}) and not pages.held:
                pages.held = (RunInFlight("a", "3", 1, 0, "run", (1, 2), (3.0, 2.0)),)
                holder.enter_context(pages.store.lock(name))
                pages.store.append(name, "started", {})
            elif told and told[-1][0] == "flight" and told[-1][1]["rows"]:
                pages.store.append(name, "cancelled", {})
        return told

    with ExitStack() as holder:
        told = asyncio.run(asyncio.wait_for(follow(), 20))
    states = [data["status"] for kind, data in told if kind == "state"]
    assert states == ["created", "running", "cancelled"]
    flights = [data for kind, data in told if kind == "flight"]
    assert [row[1:] for row in flights[1]["rows"]] == [["1", "step 2", "2"]]  # type: ignore[union-attr]
    assert flights[-1]["rows"] == []
    assert told[-1] == ("end", {})
    assert watch.num_watchers == 0


def test_one_user_does_not_take_all_streams(pages: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    name = pages.store.create(pages.lab.question().to_json(), title="watched")
    monkeypatch.setattr(routes, "MAX_WATCHERS_PER_USER", 1)
    app = make_app(pages)
    app.state.pages = replace(app.state.pages, guard=NamedDoor())
    with serving(app) as address, httpx.Client(base_url=address) as client:
        with client.stream("GET", f"/b/{name}/live") as first:
            lines = first.iter_lines()  # held: it closes the stream when it goes
            assert first.status_code == 200 and next(lines).startswith("retry")
            refused = client.get(f"/b/{name}/live")
            assert refused.status_code == 429 and "oo many of your pages" in refused.text
            with client.stream("GET", f"/b/{name}/live", headers={"X-User": "grace"}) as other:
                assert other.status_code == 200
        with pages.store.lock(name):
            pages.store.append(name, "cancelled", {})
    assert app.state.page_desk.watch.num_of("ada") == app.state.page_desk.watch.num_of("grace") == 0


def test_many_watchers_share_one_look_and_one_view(pages: Counting) -> None:
    name = pages.store.create(pages.lab.question().to_json(), title="watched by many")
    pages.drive(name)
    pages.num_opened = 0
    watch = Watch(pages, ViewCache(pages))

    async def follow() -> list[str]:
        return [event async for event in watch.stream(name)]

    async def all_of_them() -> list[list[str]]:
        return await asyncio.gather(*(follow() for _ in range(100)))

    told = asyncio.run(all_of_them())
    assert all(events == told[0] and "end" in events[-1] for events in told)
    assert pages.num_opened <= 1


def test_view_is_made_anew_for_new_events_only(pages: Counting) -> None:
    name = pages.store.create(pages.lab.question().to_json(), title="looked at")
    cache = ViewCache(pages)
    first = cache.get(name)
    assert cache.get(name) is first
    assert pages.num_opened == 1
    pages.store.append(name, "started", {})
    cache.forget(name)
    assert cache.get(name).seq == first.seq + 1
    assert pages.num_opened == 2


def test_bisection_whose_repository_is_gone_says_so(pages: Counting) -> None:
    question = pages.lab.question().to_json() | {"repo": "/nowhere/at/all"}
    name = pages.store.create(question, title="without a repository")
    view = ViewCache(pages).get(name)
    assert view.report is None
    assert "/nowhere/at/all" in view.trouble


def test_cache_keeps_no_more_than_it_may(pages: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bisect_train.service.pages.bisection_view.MAX_KEPT", 2)
    cache = ViewCache(pages)
    names = [pages.store.create({"kind": "run", "repo": "/nowhere"}, title=f"{idx}") for idx in range(4)]
    monkeypatch.setattr(Counting, "open", _gone)
    for name in names:
        cache.get(name)
    assert len(cache._slots) == 2


def _gone(pages: Counting, bisection_id: str) -> Opened:
    raise InputError(f"{bisection_id} is gone")


def test_list_is_read_anew_when_something_was_stored(pages: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bisect_train.service.pages.list_view.FRESH_S", 0.0)
    shelf = Shelf(pages)
    assert shelf.read() == ((), {})
    name = pages.store.create(pages.lab.question().to_json(), title="new")
    pages.users[name] = "ada"
    shelf.forget()
    (stored,), users = shelf.read()
    assert (stored.id, stored.status, users) == (name, "created", {name: "ada"})
    pages.store.append(name, "started", {})
    while shelf.read()[0][0].status == "created":
        pass
    assert shelf.read()[0] is shelf.read()[0]


def test_new_bisection_is_in_the_list_without_being_told(pages: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bisect_train.service.pages.list_view.FRESH_S", 0.0)
    shelf = Shelf(pages)
    shelf.read()
    name = pages.store.create(pages.lab.question().to_json(), title="new")
    while not shelf.read()[0]:
        pass
    assert shelf.read()[0][0].id == name
