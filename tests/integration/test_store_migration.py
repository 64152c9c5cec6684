"""Databases of the first version are brought to this one's schema, once, and read the same as before."""

from __future__ import annotations

import subprocess
import sys

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, text

from bisect_train.core.errors import MachineError
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import ProbeResult
from bisect_train.store import SqlStore, codec
from bisect_train.store.address import parse_address
from bisect_train.store.tables import SCHEMA_VERSION, metadata

RESULT = ProbeResult("aa", Fingerprint(Ending(EndingKind.CRASHED, "ValueError: x")), 12.5, "tail \ud800")
QUESTION = {"kind": "run", "settings": {"gpus": 2.0}}
OPENER = """
import sys
from bisect_train.store import SqlStore
sys.stdin.readline()
store = SqlStore(sys.argv[1])
print(store.load("last").title, store.last_update())
store.close()
"""


def config_of(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", "bisect_train.store:migrations")
    config.attributes["connection"] = connection
    return config


@pytest.fixture
def old_url(store_url: str) -> str:
    """A database as version 0001 has left it: a bisection with an answer, its part that took a result over, a damaged one."""
    engine = create_engine(parse_address(store_url))
    with engine.begin() as connection:
        command.upgrade(config_of(connection), "0001")
        add(connection, "bisections", id="0000000a", created_s=10.5, title="whole", question=codec.to_text(QUESTION))
        asked = codec.to_text({**QUESTION, "part_of": "0000000a"})
        add(connection, "bisections", id="0000000b", created_s=11.5, title="part", question=asked)
        asked = codec.to_text({**QUESTION, "part_of": "0000000b"})
        add(connection, "bisections", id="0000000c", created_s=12.5, title="inner", question=asked)
        add(connection, "bisections", id="0000000d", created_s=13.5, title="damaged", question="{")
        told = codec.to_text({"key": "aa", "spec": {"n": 1}})
        add(connection, "events", bisection_id="0000000a", seq=1, kind="started", time_s=20.0, data="{}")
        add(connection, "events", bisection_id="0000000a", seq=2, kind="probe_finished", time_s=21.0, data=told)
        answer = codec.to_text({"answer": {"status": "isolated"}})
        add(connection, "events", bisection_id="0000000a", seq=3, kind="finished", time_s=22.0, data=answer)
        add(connection, "events", bisection_id="0000000b", seq=1, kind="probe_reused", time_s=23.0, data=told)
        packed = codec.pack_result(RESULT)
        add(connection, "probes", bisection_id="0000000a", key="aa", seq=2, source_id=None, result=packed)
        add(connection, "probes", bisection_id="0000000b", key="aa", seq=1, source_id="0000000a", result=None)
    engine.dispose()
    return store_url


def add(connection: Connection, table: str, **values: object) -> None:
    columns, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
    connection.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({marks})"), values)


def test_bisections_of_the_first_version_read_the_same(old_url: str) -> None:
    store = SqlStore(old_url)
    whole = store.load("0000000a")
    assert (whole.created_s, whole.title, whole.question, whole.status) == (10.5, "whole", QUESTION, "finished")
    assert whole.answer == {"status": "isolated"}
    assert [(event.seq, event.kind, event.time_s) for event in store.events("0000000a")] == [
        (1, "started", 20.0),
        (2, "probe_finished", 21.0),
        (3, "finished", 22.0),
    ]
    (own,), (taken,) = store.results("0000000a"), store.results("0000000b")
    assert own.result == taken.result == RESULT and (own.spec, own.time_s) == ({"n": 1}, 21.0)
    assert store.find_probe("a").bisection_id == "0000000a"
    store.close()


def test_bisections_of_the_first_version_go_on_and_have_updates(old_url: str) -> None:
    store = SqlStore(old_url)
    assert [(item.number, item.bisection_id[-1]) for item in store.updates(0)] == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert store.append("0000000a", "started", {}) == 4
    assert [(item.number, item.bisection_id[-1]) for item in store.updates(4)] == [(5, "a")]
    queue = store.queue()
    queue.add_user("ann")
    queue.submit("0000000a", "ann")
    store.save_result("0000000c", "bb", ProbeResult("bb", RESULT.fingerprint, wall_s=3.0), spec={})
    used = queue.usage("ann", since_s=0.0)
    assert (used.num_probes, used.gpu_s) == (1, 6.0), "wholes and GPUs are read from the old questions"
    assert [item.id[-1] for item in store.page(parts=False, before="0000000d")] == ["a"]
    store.close()


def test_processes_that_open_an_old_database_at_once_migrate_it_once(old_url: str) -> None:
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, old_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    store_url_engine = create_engine(parse_address(old_url))
    with store_url_engine.begin() as connection:  # the damaged one would not be read
        connection.execute(text("UPDATE bisections SET question = '{}' WHERE id = '0000000d'"))
    store_url_engine.dispose()
    ended = [opener.communicate("go\n") for opener in openers]
    assert [(out, err) for out, err in ended] == [("damaged 4\n", "")] * 3


def test_every_revision_has_the_next_and_the_last_is_the_codes(store_url: str) -> None:
    engine = create_engine(parse_address(store_url))
    with engine.connect() as connection:
        scripts = ScriptDirectory.from_config(config_of(connection))
        revisions = [script.revision for script in scripts.walk_revisions()][::-1]
    engine.dispose()
    assert revisions == [f"{number:04d}" for number in range(1, len(revisions) + 1)]
    assert revisions[-1] == SCHEMA_VERSION


def test_migrations_make_the_tables_that_the_code_uses(store_url: str) -> None:
    SqlStore(store_url).close()
    engine = create_engine(parse_address(store_url))
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_database_of_a_newer_version_is_refused(store_url: str) -> None:
    SqlStore(store_url).close()
    engine = create_engine(parse_address(store_url))
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0042'"))
    engine.dispose()
    with pytest.raises(MachineError, match=r"newer version.*0042"):
        SqlStore(store_url)


def test_failed_migration_leaves_the_old_database_as_it_was(old_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from bisect_train.store import engine as opening

    migrate = opening._migrate

    def fail(connection: Connection) -> None:
        migrate(connection)
        raise RuntimeError("killed here")

    monkeypatch.setattr(opening, "_migrate", fail)
    with pytest.raises(RuntimeError, match="killed here"):
        SqlStore(old_url)
    monkeypatch.undo()
    engine = create_engine(parse_address(old_url))
    assert "queue" not in inspect(engine).get_table_names()
    engine.dispose()
    store = SqlStore(old_url)
    assert store.load("0000000a").status == "finished"
    store.close()
