"""PostgreSQL by its address: a real server, with what goes wrong there, and passwords that nobody gets to see."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeResult
from bisect_train.store import SqlStore, open_store
from bisect_train.store.address import parse_address
from bisect_train.store.engine import Database
from bisect_train.store.upkeep import Archive, database_bytes, has_database, open_archive
from tests.postgres import PASSWORD, PostgresServer
from tests.support.command_line import CommandLine

CREATOR = """
import sys
from bisect_train.store import SqlStore
store = SqlStore(sys.argv[1])
for _ in range(10):
    print(store.create({}, title=""))
"""


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def home(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BISECT_TRAIN_STORE", url)
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Iterator[SqlStore]:
    opened = open_store(home)
    yield opened
    opened.close()


def result_of(key: str, text: str = "") -> ProbeResult:
    return ProbeResult(key, Fingerprint(Ending(EndingKind.STOPPED)), log_tail=text)


def test_every_scheme_of_postgresql_opens_the_same_store(url: str) -> None:
    first = SqlStore(url)
    new = first.create({"a": 1}, title="t")
    for scheme in ("postgres", "postgresql+psycopg"):
        other = SqlStore(url.replace("postgresql", scheme, 1))
        assert other.load(new) == first.load(new)
        other.close()
    first.close()


def test_variable_says_where_the_bisections_are_and_the_folder_keeps_the_rest(store: SqlStore, home: Path, url: str) -> None:
    new = store.create({}, title="")
    assert home.is_dir() and not list(home.iterdir())
    direct = SqlStore(url)
    assert direct.load("last").id == new
    direct.close()


def test_command_line_works_on_a_server(store: SqlStore, home: Path, url: str, tmp_path: Path) -> None:
    new = store.create({"kind": "run"}, title="asked by a test")
    line = CommandLine(tmp_path, home, {"BISECT_TRAIN_STORE": url})
    status, output = line.run("list")
    assert status == 0 and new in output
    status, output = line.run("cache", "verify")
    assert "postgresql://postgres@/" in output and "is whole" in output
    assert f"1 cannot be read, first that of {new}" in output, "the question of this test is none"


def test_processes_that_create_at_once_get_ids_of_their_own(url: str) -> None:
    creators = [subprocess.Popen([sys.executable, "-c", CREATOR, url], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    ids = [line for creator in creators for line in creator.communicate()[0].split()]
    assert len(ids) == len(set(ids)) == 30
    store = SqlStore(url)
    assert [item.number for item in store.updates(0)] == list(range(1, 31))
    store.close()


def test_who_watches_while_another_writes_slowly_misses_nothing(store: SqlStore) -> None:
    """A number that was given out and not committed yet holds up those that come after it."""
    first, second = store.create({}, title=""), store.create({}, title="")
    known = store.last_update()
    from bisect_train.store import rows

    with store._database.write() as connection:
        rows.lock_row(connection, first)
        rows.append_event(connection, first, "slow", {}, time_s=0.0)
        rows.note_update(connection, first)
        quick = threading.Thread(target=store.append, args=(second, "quick", {}))
        quick.start()
        quick.join(0.5)
        assert quick.is_alive() and store.updates(known) == ()
    quick.join()
    assert [item.bisection_id for item in store.updates(known)] == [first, second]


# ---- a server that goes away --------------------------------------------------------------------------------------


def test_server_that_is_restarted_is_waited_for(postgres: PostgresServer, url: str) -> None:
    store = SqlStore(url)
    new = store.create({}, title="")
    postgres.stop()
    writer = threading.Thread(target=store.append, args=(new, "note", {}))
    writer.start()
    writer.join(0.3)
    assert writer.is_alive()
    postgres.start()
    writer.join()
    assert [event.kind for event in store.events(new)] == ["note"]
    store.close()


def test_server_that_stays_away_is_a_machine_error(postgres: PostgresServer, url: str) -> None:
    database = Database(parse_address(url), patience_s=0.3)
    postgres.stop()
    try:
        with pytest.raises(MachineError, match="no server listens there") as caught, database.read():
            pass
        assert "BISECT_TRAIN_STORE" in caught.value.hint
        with pytest.raises(MachineError, match="no server listens there"):
            SqlStore(url)
    finally:
        postgres.start()
        database.close()


def test_connection_that_the_server_ends_loses_that_one_write(postgres: PostgresServer, url: str) -> None:
    store = SqlStore(url)
    new = store.create({}, title="")
    kill = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    name = url.split("@/")[1].split("?")[0]
    with pytest.raises(MachineError, match="the server has closed the connection"), store._database.write() as connection:
        connection.exec_driver_sql("SELECT 1")
        postgres.sql(name, kill)
        connection.exec_driver_sql("SELECT 1")
    assert store.append(new, "note", {}) == 1
    store.close()


# ---- bad addresses and secrets ------------------------------------------------------------------------------------


def test_login_with_a_password_works_and_is_not_shown(postgres: PostgresServer, url: str) -> None:
    store = SqlStore(postgres.new_login(url))
    new = store.create({}, title="")
    assert store.load(new).id == new
    assert store.place.startswith("postgresql://user_test") and "s3cret" not in store.place
    assert "s3cret" not in repr(store) + str(vars(store))
    store.close()


def test_wrong_logins_say_what_is_wrong_without_the_password(
    postgres: PostgresServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    good = postgres.new_login(url)
    encoded = PASSWORD.replace("@", "%40")
    cases = {
        good.replace(encoded, "wr0ng-word"): "refuses this user",
        good.replace(f":{encoded}", ""): "wants a password",
        f"{good}_x": "something is not there",
        good.replace("127.0.0.1", "no-such-host.invalid"): "there is no such host",
        good.replace(f":{postgres.port}", ":1"): "no server listens there",
        good.replace(f":{encoded}", "") + f"?password={encoded}x": "refuses this user",
    }
    for address, problem in cases.items():
        with pytest.raises(MachineError, match=problem) as caught:
            SqlStore(address)
        shown = "".join(traceback.format_exception(caught.value))
        assert "s3cret" not in shown and "wr0ng" not in shown
    assert "s3cret" not in caplog.text and "wr0ng" not in caplog.text


def test_user_who_may_not_make_tables_is_told(postgres: PostgresServer, url: str) -> None:
    name = url.split("@/")[1].split("?")[0]
    address = postgres.new_login(url)
    postgres.sql("postgres", f"ALTER DATABASE {name} OWNER TO postgres")
    with pytest.raises(MachineError, match="this user may not do that") as caught:
        SqlStore(address)
    assert "GRANT" in caught.value.hint


def test_address_in_the_variable_that_is_none_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BISECT_TRAIN_STORE", "mysql://me:s3cret@host/x")
    with pytest.raises(InputError, match=r"mysql://\.\.\. is not the address") as caught:
        open_store(tmp_path)
    assert "BISECT_TRAIN_STORE" in caught.value.hint and "s3cret" not in str(caught.value)


# ---- housekeeping -------------------------------------------------------------------------------------------------


def test_archive_of_a_server_lists_and_removes(store: SqlStore, home: Path) -> None:
    assert has_database(home) and database_bytes(home) == 0, "nothing of it is on this machine"
    first, second = store.create({}, title=""), store.create({}, title="")
    for idx in range(120):
        store.save_result(
            first, f"{idx:04x}", result_of(f"{idx:04x}", random.Random(idx).randbytes(500).hex()), spec={"n": idx}
        )
    store.reuse_result(second, "0007", {"n": 7})
    archive = open_archive(home)
    assert isinstance(archive, Archive)
    assert [item.key for item in archive.results()] == [f"{idx:04x}" for idx in range(120)]
    assert archive.problems() == [] and archive.num_bytes() > 100_000
    with store.lock(first), pytest.raises(InputError, match="is being run by"):
        archive.remove([first])
    queue = store.queue()
    queue.add_user("ann")
    queue.submit(first, "ann")
    with pytest.raises(InputError, match=f"bisection {first} is in the queue"):
        archive.remove([first])
    queue.cancel(first)
    archive.remove([first])
    archive.shrink()
    assert [item.id for item in store.list()] == [second] and queue.entry(first) is None
    (taken,) = store.results(second)
    assert taken.result.log_tail == random.Random(7).randbytes(500).hex()
    archive.close()
