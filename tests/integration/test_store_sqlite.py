"""The SQLite store against processes that die, databases that are damaged and folders that cannot be written."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import inspect
from sqlalchemy.engine import make_url

from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeResult
from bisect_train.store import SqlStore, default_home, open_store
from bisect_train.store.engine import Database
from bisect_train.store.home import ensure_home
from bisect_train.store.tables import SCHEMA_VERSION, metadata

WRITER = """
import sys
from pathlib import Path
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeResult
from bisect_train.store import open_store

store = open_store(Path(sys.argv[1]))
with store.lock(sys.argv[2]):
    idx = 0
    while True:
        key = f"{sys.argv[3]}-{idx}"
        result = ProbeResult(key, Fingerprint(Ending(EndingKind.STOPPED)), log_tail=key * 500)
        store.save_result(sys.argv[2], key, result, spec={"idx": idx})
        print(key, flush=True)
        idx += 1
"""

CREATOR = """
import sys
from pathlib import Path
from bisect_train.store import open_store
store = open_store(Path(sys.argv[1]))
for idx in range(5):
    print(store.create({}, title=sys.argv[2]))
"""


def result_of(key: str) -> ProbeResult:
    return ProbeResult(key, Fingerprint(Ending(EndingKind.STOPPED)))


def start(script: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", script, *args], stdout=subprocess.PIPE, text=True)


def test_kill_9_while_results_are_saved_loses_no_acknowledged_one(tmp_path: Path) -> None:
    rng = random.Random(20)
    store = open_store(tmp_path)
    new = store.create({}, title="torture")
    acknowledged: list[str] = []
    for round_idx in range(10):
        process = start(WRITER, str(tmp_path), new, f"r{round_idx}")
        assert process.stdout is not None
        for _ in range(rng.randrange(1, 40)):
            acknowledged.append(process.stdout.readline().strip())
        assert store.is_running(new)
        process.send_signal(signal.SIGKILL)
        acknowledged += process.stdout.read().split("\n")[:-1]  # printed whole before it died
        process.wait()
        assert not store.is_running(new)
        keys = [probe.key for probe in store.results(new)]
        assert set(acknowledged) <= set(keys)
        events = store.events(new)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert [event.data["key"] for event in events] == keys
    store.close()
    with sqlite3.connect(tmp_path / "bisect-train.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()


def test_lock_of_another_process_is_named_and_dies_with_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    new = store.create({}, title="")
    process = start(WRITER, str(tmp_path), new, "w")
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(InputError, match=f"being run by process {process.pid}") as caught, store.lock(new):
        pass
    assert f"bisect-train cancel {new}" in caught.value.hint
    process.kill()
    process.communicate()
    with store.lock(new):
        assert store.is_running(new)
    store.close()


def test_processes_open_a_new_store_at_the_same_time(tmp_path: Path) -> None:
    processes = [start(CREATOR, str(tmp_path), str(idx)) for idx in range(4)]
    ids: list[str] = []
    for process in processes:
        output, _ = process.communicate()
        assert process.returncode == 0
        ids += output.split()
    assert len(set(ids)) == 20
    store = open_store(tmp_path)
    assert {item.id for item in store.list()} == set(ids)
    store.close()


def test_reopened_store_has_everything_and_the_safe_settings(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    new = store.create({"a": 1}, title="t")
    store.save_result(new, "aa", result_of("aa"), spec={})
    store.close()
    again = open_store(tmp_path)
    assert again.load(new).question == {"a": 1}
    assert again.find_result("aa") == result_of("aa")
    with again._database.read() as connection:
        settings = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    assert settings == ["wal", 2, 1, 30000]
    again.close()


def test_migrations_make_the_tables_that_the_code_uses(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    made = inspect(store._database._engine)
    assert {*made.get_table_names()} == {*metadata.tables, "alembic_version"}
    for name, table in metadata.tables.items():
        columns = {item["name"]: (str(item["type"]), item["nullable"]) for item in made.get_columns(name)}
        wanted = {item.name: (str(item.type.compile(store._database._engine.dialect)), item.nullable) for item in table.columns}
        assert columns == wanted
        assert len(made.get_foreign_keys(name)) == len(table.foreign_key_constraints)
        assert {index["name"] for index in made.get_indexes(name)} == {index.name for index in table.indexes}
    store.close()


def test_database_of_a_newer_version_is_refused_and_not_touched(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    path = tmp_path / "bisect-train.db"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0042'")
    connection.close()
    with pytest.raises(MachineError, match=r"newer version.*0042") as caught:
        open_store(tmp_path)
    assert str(path) in caught.value.message
    assert SCHEMA_VERSION in caught.value.message


def test_file_that_is_no_database_is_a_machine_error(tmp_path: Path) -> None:
    path = tmp_path / "bisect-train.db"
    path.write_bytes(b"hello, this is not a database at all " * 200)
    with pytest.raises(MachineError, match="not a database") as caught:
        open_store(tmp_path)
    assert str(path) in caught.value.message
    assert "move it away" in caught.value.hint


def test_torn_database_is_a_machine_error(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    new = store.create({}, title="")
    for idx in range(50):
        store.save_result(
            new, f"{idx}", ProbeResult("", Fingerprint(Ending(EndingKind.STOPPED)), log_tail=os.urandom(3000).hex()), spec={}
        )
    store.close()
    path = tmp_path / "bisect-train.db"
    data = path.read_bytes()
    path.write_bytes(data[:8192] + b"\xa5" * (len(data) - 8192))
    with pytest.raises(MachineError, match=str(path)):
        broken = open_store(tmp_path)
        try:
            broken.results(new)
        finally:
            broken.close()


def test_damaged_result_is_a_machine_error(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    new = store.create({}, title="")
    store.save_result(new, "aa", result_of("aa"), spec={})
    with sqlite3.connect(tmp_path / "bisect-train.db") as connection:
        connection.execute("UPDATE probes SET result = x'0102'")
    connection.close()
    with pytest.raises(MachineError, match="cannot be read"):
        store.find_result("aa")
    store.close()


def test_full_disk_is_a_machine_error_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    new = store.create({}, title="")
    with store._database.read() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    big = ProbeResult("", Fingerprint(Ending(EndingKind.STOPPED)), log_tail=os.urandom(100_000).hex())
    with pytest.raises(MachineError, match="the disk is full") as caught:
        store.save_result(new, "aa", big, spec={})
    assert "free some space" in caught.value.hint
    assert store.events(new) == ()
    assert store.find_result("aa") is None
    store.close()


def test_locked_database_is_a_machine_error(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    new = store.create({}, title="")
    holder = sqlite3.connect(tmp_path / "bisect-train.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with store._database.read() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout = 1")
    with pytest.raises(MachineError, match="locked"):
        store.append(new, "note", {})
    assert store.events(new) == ()  # readers never wait
    holder.execute("ROLLBACK")
    holder.close()
    assert store.append(new, "note", {}) == 1
    store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_home_that_cannot_be_written_is_a_machine_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(MachineError, match="no permission") as caught:
            open_store(tmp_path)
        with pytest.raises(MachineError, match="cannot keep state"):
            open_store(tmp_path / "deeper")
    finally:
        tmp_path.chmod(0o700)
    assert "BISECT_TRAIN_HOME" in caught.value.hint


def test_read_only_database_is_a_machine_error(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    new = store.create({}, title="")
    with store._database.read() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")  # SQLite's own words for a file that root may write
    with pytest.raises(MachineError, match="cannot be written") as caught:
        store.append(new, "note", {})
    store.close()
    assert str(tmp_path / "bisect-train.db") in caught.value.message


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux's /proc, where not even root makes folders")
def test_home_that_cannot_be_made_is_a_machine_error() -> None:
    with pytest.raises(MachineError, match="cannot keep state") as caught:
        open_store(Path("/proc/bisect-train"))
    assert "BISECT_TRAIN_HOME" in caught.value.hint


def test_home_that_is_a_file_is_a_machine_error(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(MachineError, match="cannot keep state"):
        open_store(tmp_path / "home")


def test_home_with_odd_characters_works(tmp_path: Path) -> None:
    home = tmp_path / "a b?c#d%20é"
    store = open_store(home)
    new = store.create({}, title="")
    store.close()
    assert (home / "bisect-train.db").is_file()
    again = open_store(home)
    assert again.load("last").id == new
    again.close()


def test_default_home_is_the_variable_else_the_platforms_folder(tmp_path: Path) -> None:
    assert default_home({"BISECT_TRAIN_HOME": str(tmp_path)}) == tmp_path
    assert default_home({"BISECT_TRAIN_HOME": "~/x"}) == Path.home() / "x"
    assert default_home({}).name == "bisect-train"
    assert default_home({"BISECT_TRAIN_HOME": ""}).is_absolute()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "no url"])
def test_url_without_a_place_for_locks_is_an_input_error(url: str) -> None:
    with pytest.raises(InputError):
        SqlStore(url)


def test_failed_migration_leaves_no_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(connection: object) -> None:
        connection.exec_driver_sql("CREATE TABLE half (x)")  # type: ignore[attr-defined]
        raise RuntimeError("killed here")

    monkeypatch.setattr("bisect_train.store.engine._migrate", fail)
    with pytest.raises(RuntimeError):
        open_store(tmp_path)
    monkeypatch.undo()
    store = open_store(tmp_path)
    assert "half" not in inspect(store._database._engine).get_table_names()
    store.close()


def test_guard_names_a_server_without_its_password(tmp_path: Path) -> None:
    database = Database(make_url(f"sqlite:///{tmp_path}/x.db"), create_lock=tmp_path / "x.lock")
    assert database.place == f"{tmp_path}/x.db"
    database.close()


def test_folder_for_state_is_its_owners_alone(tmp_path: Path) -> None:
    made = ensure_home(tmp_path / "a" / "home")
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o750)
    assert ensure_home(made).stat().st_mode & 0o777 == 0o750, "one that is there stays as it is"
