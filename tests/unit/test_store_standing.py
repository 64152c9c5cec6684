"""A bisection that has just ended is not one that was killed."""

from __future__ import annotations

import pytest

from bisect_train.cli import list_command
from bisect_train.service.pages import words
from bisect_train.store.contract import StoredBisection
from bisect_train.store.memory import MemoryStore
from bisect_train.store.standing import standing_of


class EndsJustNow(MemoryStore):
    """Its coordinator ends between two looks: it says so, then lets go of its lock."""

    def is_running(self, bisection_id: str) -> bool:
        self.append(bisection_id, "cancelled", {})
        return False


def begin(store: MemoryStore) -> StoredBisection:
    name = store.create({"kind": "run"}, title="what made it worse?")
    store.append(name, "started", {})
    stored = store.load(name)
    assert stored.status == "running"
    return stored


@pytest.mark.parametrize(("kind", "said"), [(EndsJustNow, "cancelled"), (MemoryStore, "stopped")])
def test_one_that_has_just_ended_is_told_from_one_that_was_killed(kind: type[MemoryStore], said: str) -> None:
    for look in (
        standing_of,
        list_command.status_of,
        lambda stored, store: words.status_of(stored, store, is_queued=False).name,
    ):
        store = kind()
        assert look(begin(store), store) == said


def test_one_that_runs_is_running() -> None:
    store = MemoryStore()
    stored = begin(store)
    with store.lock(stored.id):
        assert standing_of(stored, store) == "running"
        assert words.status_of(stored, store, is_queued=True).name == "queued"
