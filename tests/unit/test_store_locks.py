"""Locks of files: who only asks whether one is held does not look like a holder to others who ask."""

from __future__ import annotations

import threading
from pathlib import Path

from bisect_train.store.locks import LockFolder

NAME = "abcd1234"


def test_threads_that_ask_at_the_same_time_do_not_disturb_each_other(tmp_path: Path) -> None:
    locks, start, answers = LockFolder(tmp_path), threading.Barrier(4), set()
    (tmp_path / f"{NAME}.lock").touch()

    def ask() -> None:
        start.wait()
        for _ in range(300):
            answers.add(locks.is_held(NAME))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {False}


def test_lock_that_is_held_is_told_from_one_that_is_free(tmp_path: Path) -> None:
    locks = LockFolder(tmp_path)
    assert not locks.is_held(NAME)
    with locks.hold(NAME):
        assert locks.is_held(NAME) and not locks.is_held("ef01")
    assert not locks.is_held(NAME)
