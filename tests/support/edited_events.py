"""A bisection with events of every kind in a real database, and what reads them back: for tests that change them by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

from bisect_train.changes.space import ChangeSpace
from bisect_train.cli.desk import Desk
from bisect_train.cli.idle import num_key_probes
from bisect_train.cli.list_command import row_of
from bisect_train.cli.log_command import _print_event
from bisect_train.cli.reopening import Reopened, report_of
from bisect_train.cli.triaging import num_second_looks, second_look_of
from bisect_train.coordinator import Coordinator, children_of, limits_left, load_state
from bisect_train.coordinator.event_log import read_events, read_probe, refuse_changes
from bisect_train.coordinator.limits import question_in_force
from bisect_train.coordinator.person import steps_to_undo, undo_event
from bisect_train.coordinator.retelling import list_entries
from bisect_train.core.probe import Rung
from bisect_train.core.question import Question
from bisect_train.service.feed import message_of
from bisect_train.service.pages.flight_view import unfinished_runs
from bisect_train.service.pages.words import say_cost
from bisect_train.store import codec
from bisect_train.store.contract import StoredEvent
from bisect_train.store.home import open_store
from bisect_train.store.sql import SqlStore
from tests.support.simulated_bisection import Lab, drive

REQUEST = {"point": "1", "seed_idx": 0, "repeat": 0, "attempt": 0, "proof_of": -1, "part": 0}
SPEC = {
    **REQUEST,
    "variant": "v",
    "commit": "c" * 40,
    "tree": "t" * 40,
    "config": "lr: 1\n",
    "rung": "8 steps x 1 rank",
    "hardware_class": "a CPU",
    "interpreter": "python 3.11",
}
_TAKEN = {"keys": ["k9"], "requests": [REQUEST]}
SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "started": {},
    "limits_changed": {"max_probes": 90, "gpu_hours": None, "wall_s": 3600.0},
    "probe_started": {"key": "k9", "point": "1"},
    "probe_lost": {"key": "k9", "reason": "the node died", "tries": 1, "wall_s": 2.0, "node": "a"},
    "probe_cancelled": {"key": "k8", "wall_s": 1.5},
    "probe_finished": {"key": "k7", "spec": {**SPEC, "begun_as": "k6"}},
    "probe_reused": {"key": "k6", "spec": {**SPEC, "taken_from": "0000000a"}},
    "result_shared": {"key": "k7", "spec": {**SPEC, "point": "2-0"}},
    "given_up": {**SPEC, "seed_idx": 3, "reason": "lost 3 times"},
    "unbuildable": {"point": "2-0", "reason": "a conflict"},
    "marked": {"point": "1", "commit": "c" * 40, "verdict": "good"},
    "undone": {"seqs": [3], **_TAKEN},
    "replayed": {"of": "0000000a", **_TAKEN},
    "nodes_seen": {"nodes": ["a", "b"], "notes": ["node old is left out"]},
    "node_suspect": {"node": "a", "why": "loses", "reason": "a loses", "seqs": [], "keys": [], "requests": []},
    "nodes_disagree": {"reason": "a and b"},
    "descended": {"opened": "c" * 40, "child": "0000000b"},
    "not_opened": {"opened": "d" * 40, "reason": ""},
    "warm_start": {"is_proven": True, "key": "k7", "hardware_class": "a CPU", "interpreter": "python 3.11"},
    "keys_tried": {"commit": "c" * 40, "path": "a.yaml", "tried": ["lr"], "idle": ["lr"], "num_probes": 4},
    "looked_closer": {"kind": "anomaly", "said": ["a line"], "key": "k7", "reason": "", "num_probes": 1},
    "told": {
        "place": "p",
        "name": "a webhook",
        "finding": "bisection-0000000a",
        "revision": 1,
        "content": "c",
        "key": "f",
        "receipt": {"how": "sent", "place": "", "reason": ""},
    },
    "rung_taken": {
        "idx": 0,
        "from_idx": 1,
        "reason": "it shows nothing",
        "is_trial": False,
        "is_settled": True,
        "fall_back": None,
        "num_attempts": 0,
        "sd": 2.5,
    },
    "golden_stale": {"key": "k7"},
    "reuse_distrusted": {},
    "budget_spent": {"reason": "the budget of 3 probes is spent", "is_unseen": True},
    "finished": {
        "answer": {
            "status": "isolated",
            "summary": "it is one",
            "cost": {"probes": 9, "wall_s": 1.5, "gpu_s": 0.0},
            "culprits": [{"changes": [{"kind": "commit", "id": "c" * 40}]}],
        },
        "exit_status": 0,
    },
    "a kind of tomorrow": {"spec": {"attempt": 0}, "key": "k"},
}
"""Data of each kind as it is written."""


@dataclass(frozen=True, slots=True)
class EditedBisection:
    """A finished bisection of simulated probes, with an event of each kind behind its own.

    Attributes:
        lab: its repository.
        home: the tool's folder, with the database.
        id: of the bisection.
        question, space: what was asked.
        texts: the data of its events as they lie in the database, by their numbers.
    """

    lab: Lab
    home: Path
    id: str
    question: Question
    space: ChangeSpace
    texts: Mapping[int, str]

    @staticmethod
    def build(folder: Path) -> EditedBisection:
        """Run the bisection; takes a second."""
        lab = Lab.build(folder, num_commits=5, culprit=2)
        question = lab.question()
        question = replace(question, ladder=(question.rung, Rung(2 * (question.rung.steps or 1), 1)))
        store = open_store(lab.home)
        name, _ = drive(lab, store, question=replace(question, ladder=()))
        key = store.results(name)[0].key
        for kind, data in SAMPLES.items():
            if kind != "probe_finished":  # it has some, with results
                store.append(name, kind, {**data, "key": key} if kind == "result_shared" else dict(data))
        made = EditedBisection(lab, lab.home, name, question, lab.space(question), {})
        texts = dict(made.execute("SELECT seq, data FROM events"))
        made.execute("UPDATE bisections SET question = ?", codec.to_text(question.to_json()))
        store.close()
        return replace(made, texts=texts)

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Change or read rows behind the store's back."""
        with closing(sqlite3.connect(self.home / "bisect-train.db", isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            return connection.execute(statement, values).fetchall()

    def put(self, texts: Mapping[int, str]) -> None:
        """Write the data of some events."""
        for seq, text in texts.items():
            self.execute("UPDATE events SET data = ? WHERE seq = ?", text, seq)

    def look_at_all(self) -> tuple[StoredEvent, ...]:
        """Open the store, look around, and return the events as they are read back."""
        store = open_store(self.home)
        try:
            self.look_around(store)
            return read_events(store, self.id)
        finally:
            store.close()

    def look_around(self, store: SqlStore) -> None:
        """Read what must be there whatever a bisection's events hold: the list of all, and the events as they lie there."""
        for stored in store.list():
            assert stored.id in row_of(stored, store)
            say_cost((stored.answer or {}).get("cost"))
        with redirect_stdout(StringIO()):
            for event in store.events(self.id):
                for as_json in (False, True):
                    _print_event(event, as_json=as_json)
                message_of(event)

    def read(self, store: SqlStore) -> None:
        """Read the bisection in every way in which it is read back."""
        question = question_in_force(store, store.load(self.id))
        refuse_changes(read_events(store, self.id), self.id, len(self.space.changes))
        state = load_state(store, self.id, question)
        desk = Desk(self.home, store)
        reopened = Reopened(store.load(self.id), question, self.space, state, state.plan(question, self.space))
        report_of(desk, reopened)
        list_entries(store, self.id, question)
        events = read_events(store, self.id)
        undo_event(steps_to_undo(events))
        unfinished_runs(events)
        limits_left(store, question, [self.id, *(name for name in children_of(events).values() if name == self.id)])
        second_look_of(events)
        num_key_probes(events)
        num_second_looks(events)
        for probe in store.results(self.id):
            read_probe(store, probe.key)
        with store.lock(self.id):
            executor = self.lab.executor()
            asked = {"bisection_id": self.id, "space": self.space, "store": store, "executor": executor}
            Coordinator(question, **asked, listener=lambda event: None, clock=lambda: 0.0)._load_stored()
