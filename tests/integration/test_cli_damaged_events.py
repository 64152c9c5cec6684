"""One event of a bisection is changed by hand: every command says which, the others are listed, and mended it goes on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bisect_train.cli.estimate import usual_duration_s
from tests.support.command_bench import Bench
from tests.support.service import service_lab

READERS = (
    *(("status",), ("report",), ("resume", "--quiet"), ("resume", "--max-probes", "90"), ("undo",), ("log", "--observations")),
    ("replay", "--dry-run"),
)


class Edited:
    """A bisection with answer, an older one, and the place of one of its events."""

    def __init__(self, bench: Bench, place: Path) -> None:
        self.bench, self.older, self.name = bench, bench.ask(), bench.interrupt(6)
        self.log = place / "runs.txt"
        bench.succeed("log", self.name, "--observations", "--out", str(self.log))
        first = "SELECT seq, kind, data FROM events WHERE bisection_id = ? AND kind = 'probe_finished' ORDER BY seq LIMIT 1"
        self.seq, self.kind, self.text = self.execute(first, self.name)

    def execute(self, statement: str, *values: object) -> Any:
        with closing(sqlite3.connect(self.bench.lab.home / "bisect-train.db", isolation_level=None)) as connection:
            return connection.execute(statement, values).fetchone()

    def put(self, text: str) -> None:
        self.execute("UPDATE events SET data = ? WHERE bisection_id = ? AND seq = ?", text, self.name, self.seq)

    def without(self, key: str) -> str:
        data = json.loads(self.text)
        del data["spec"][key]
        return json.dumps(data)

    @property
    def said(self) -> str:
        return f"event {self.seq} ({self.kind}) of bisection {self.name} cannot be read"


@pytest.fixture
def edited(bench: Bench, tmp_path: Path) -> Iterator[Edited]:
    yield Edited(bench, tmp_path)


def args_of(edited: Edited, reader: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments of a command about the bisection."""
    command, *more = reader
    return (command, str(edited.log) if command == "replay" else edited.name, *more)


def test_every_command_says_which_event_and_nothing_is_lost(edited: Edited) -> None:
    edited.put(edited.without("seed_idx"))
    num = len(edited.bench.events(edited.name))
    for reader in READERS:
        status, _, err = edited.bench.call(*args_of(edited, reader))
        assert status == 1 and edited.said in err and "Traceback" not in err, (reader, err)
        assert "`spec.seed_idx` is not there; it must be a whole number" in err and f"bisect-train log {edited.name}" in err
    assert len(edited.bench.events(edited.name)) == num, "nothing was stored on what could not be read"
    edited.put(edited.text)
    edited.bench.succeed("resume", edited.name, "--quiet")
    assert edited.bench.succeed("status", edited.name)


@pytest.mark.parametrize("torn", ['{"key": ', "[]", ""])
def test_torn_event_is_listed_with_the_others_around_it(edited: Edited, torn: str) -> None:
    edited.put(torn)
    for args in (("log", edited.name), ("log", edited.name, "--json")):
        status, out, err = edited.bench.call(*args)
        assert status == 1 and edited.said in err
        assert len(out.splitlines()) == len(edited.bench.events(edited.name))
        assert sum("its data is torn" in line for line in out.splitlines()) == 1
    assert edited.name in edited.bench.succeed("list") and edited.older in edited.bench.succeed("list")
    kept = [line.split()[:2] for line in edited.bench.succeed("cache", "ls").splitlines()]
    assert ["bisection", "2"] in kept, "nothing else of the database is lost"
    assert edited.said in edited.bench.call("status", edited.name)[2]
    edited.bench.succeed("status", edited.older)
    status, out, _ = edited.bench.call("cache", "verify")
    shown = " ".join(out.split())
    assert status == 1 and f"event {edited.seq} ({edited.kind}) of bisection {edited.name}: its data is torn" in shown
    num = len(edited.bench.events(edited.name))
    assert f"{num - 1} of {num} can be read" in shown and f"cache gc --bisection {edited.name}" in shown


def test_answer_that_is_torn_leaves_the_list_whole(edited: Edited) -> None:
    edited.bench.succeed("resume", edited.name, "--quiet")
    for text in ('{"answer": [1]}', '{"answer": {"cost": 5, "summary": []}}', "{"):
        edited.execute("UPDATE events SET data = ? WHERE kind = 'finished'", text)
        assert edited.name in edited.bench.succeed("list") and edited.older in edited.bench.succeed("list")
        status, _, err = edited.bench.call("report", edited.name)
        assert status == 1 and "(finished) of bisection" in err


@pytest.mark.parametrize(("text", "usual_s"), [("{", None), ('{"key": "x"}', None), ('{"key": "x", "spec": {}}', 2.0)])
def test_same_question_asked_again_takes_over_what_was_measured(edited: Edited, text: str, usual_s: float | None) -> None:
    edited.put(text)
    with edited.bench.store() as store:
        assert usual_duration_s(store, edited.bench.lab.question()) == usual_s, "a guess does without what is damaged"
    again = edited.bench.ask()
    edited.bench.succeed("resume", again, "--quiet")
    kinds = [event.kind for event in edited.bench.events(again)]
    assert kinds.count("probe_reused") >= 3
    assert edited.said in edited.bench.call("status", edited.name)[2]


def test_probe_whose_spec_is_of_another_shape_is_told(edited: Edited) -> None:
    key = json.loads(edited.text)["key"]
    edited.bench.succeed("show", key)
    edited.put(edited.without("point"))
    status, _, err = edited.bench.call("show", key)
    assert status == 1 and f"probe {key} of bisection {edited.name} cannot be read (`spec.point` is not there" in err


@pytest.mark.parametrize(("name", "value"), [("point", "99"), ("point", "2+77"), ("proof_of", 13)])
def test_event_about_changes_that_are_not_there_is_told(edited: Edited, name: str, value: Any) -> None:
    data = json.loads(edited.text)
    data["spec"][name] = value
    edited.put(json.dumps(data))
    for reader in (("status",), ("resume", "--quiet")):
        status, _, err = edited.bench.call(*args_of(edited, reader))
        assert status == 1 and edited.said in err and f"`spec.{name}` is {value!r}; the bisection has 13 changes" in err


def test_service_lists_all_and_says_of_the_one_that_it_cannot(edited: Edited, caplog: pytest.LogCaptureFixture) -> None:
    with service_lab(edited.bench.lab.home, edited.bench.lab.repo.path) as lab:
        for text in (edited.without("seed_idx"), "{"):
            edited.put(text)
            assert {item["id"] for item in lab.get("/bisections")["items"]} == {edited.name, edited.older}
            page = lab.call("GET", "/")
            assert page.status_code == 200 and edited.name in page.text and edited.older in page.text
            caplog.clear()
            lab.refuse(503, "GET", f"/api/v1/bisections/{edited.name}/state")
            assert edited.said in caplog.text
            page = lab.call("GET", f"/b/{edited.name}")
            assert page.status_code == 200 and f"It cannot be rebuilt here: {edited.said}" in page.text
            assert lab.get(f"/bisections/{edited.older}/state")
            assert lab.call("GET", f"/b/{edited.older}").status_code == 200
