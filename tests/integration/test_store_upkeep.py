"""A database as a whole: is it sound, and what happens to results when bisections leave it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeResult
from bisect_train.store.home import DATABASE_NAME, open_store
from bisect_train.store.sql import SqlStore
from bisect_train.store.upkeep import Archive, database_bytes, open_archive, stale_locks


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    opened = open_store(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def archive(store: SqlStore, tmp_path: Path) -> Iterator[Archive]:
    opened = open_archive(tmp_path)
    assert opened is not None
    yield opened
    opened.close()


def result_of(key: str, text: str = "") -> ProbeResult:
    return ProbeResult(key, Fingerprint(Ending(EndingKind.STOPPED)), log_tail=text)


def ask(store: SqlStore, *keys: str, reused: tuple[str, ...] = ()) -> str:
    """Store a bisection with results of its own and some that it took over."""
    name = store.create({"kind": "run"}, title="a question")
    for key in keys:
        store.save_result(name, key, result_of(key, f"of {name}"), spec={"point": "0"})
    for key in reused:
        store.reuse_result(name, key, {"point": "0"})
    return name


def test_results_are_listed_once_with_their_size(store: SqlStore, archive: Archive) -> None:
    first = ask(store, "a", "b")
    ask(store, "c", reused=("a",))
    found = list(archive.results())
    assert sorted(result.key for result in found) == ["a", "b", "c"]
    assert all(result.num_bytes > 50 and not result.problem for result in found)
    assert next(result for result in found if result.key == "a").bisection_id == first


def test_result_that_others_took_over_outlives_its_bisection(store: SqlStore, archive: Archive) -> None:
    first = ask(store, "a", "b")
    second = ask(store, reused=("a",))
    third = ask(store, reused=("a",))
    kept = [store.results(name) for name in (second, third)]
    archive.remove([first])
    assert [store.results(name) for name in (second, third)] == kept
    assert store.find_result("b") is None and [result.bisection_id for result in archive.results()] == [second]
    archive.remove([second])
    assert store.results(third) == kept[1] and store.find_result("a") == kept[1][0].result
    assert [stored.id for stored in store.list()] == [third] and archive.problems() == []
    archive.remove([third])
    assert list(archive.results()) == [] and store.list() == ()


def test_bisections_leave_together_or_not_at_all(store: SqlStore, archive: Archive) -> None:
    names = [ask(store, key) for key in "abc"]
    with store.lock(names[1]), pytest.raises(InputError, match="is being run by"):
        archive.remove(names)
    assert len(store.list()) == 3
    archive.remove(names)
    assert store.list() == ()


def test_space_of_removed_results_is_given_back(store: SqlStore, archive: Archive, tmp_path: Path) -> None:
    name = store.create({"kind": "run"}, title="large")
    for idx in range(100):
        text = random.Random(idx).randbytes(8000).hex()
        store.save_result(name, f"{idx:04x}", result_of(f"{idx:04x}", text), spec={})
    archive.shrink()
    before = database_bytes(tmp_path)
    archive.remove([name])
    archive.shrink()
    assert before > 300_000 and database_bytes(tmp_path) < before / 4


def test_sound_database_has_no_problems(store: SqlStore, archive: Archive) -> None:
    ask(store, "a", reused=())
    assert archive.problems() == []


def test_rows_that_refer_to_nothing_are_a_problem(store: SqlStore, archive: Archive) -> None:
    name = ask(store, "a")
    with archive._database._engine.begin() as connection:
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        connection.exec_driver_sql(f"DELETE FROM bisections WHERE id = '{name}'")
    assert any("refers to one of bisections" in problem for problem in archive.problems())


def test_damaged_page_is_found(store: SqlStore, archive: Archive, tmp_path: Path) -> None:
    name = store.create({"kind": "run"}, title="many")
    for idx in range(60):
        store.save_result(name, f"{idx:04x}", result_of(f"{idx:04x}", "x" * 4000), spec={"point": "0", "fill": "y" * 3000})
    archive.shrink()
    archive.close()
    store.close()
    path = tmp_path / DATABASE_NAME
    data = bytearray(path.read_bytes())
    for start in range(len(data) // 8192 * 4096, len(data), 4096):  # the first pages hold the list of tables
        data[start : start + 64] = b"\xff" * 64
    path.write_bytes(data)
    opened = Archive(tmp_path)
    try:
        assert opened.problems() != []
    except MachineError as error:
        assert "damaged" in error.message
    finally:
        opened.close()


def test_home_without_a_database_has_no_archive_and_an_empty_one_is_told(tmp_path: Path) -> None:
    assert open_archive(tmp_path) is None and not list(tmp_path.iterdir())
    (tmp_path / DATABASE_NAME).touch()
    with pytest.raises(MachineError, match="is empty"):
        open_archive(tmp_path)


def test_locks_of_unknown_bisections_are_stale(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    for name in ("aa.lock", "aa.pid", "bb.lock", "other.txt"):
        (tmp_path / "locks" / name).touch()
    assert [path.name for path in stale_locks(tmp_path, frozenset({"aa"}))] == ["bb.lock"]
