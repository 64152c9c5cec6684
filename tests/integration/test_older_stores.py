"""Bisections in files that older versions have written are listed, shown, gone on with and replayed by this one.

`tests/data/stores/schemaNNNN.db.gz` was written by the version that brought schema NNNN in: one bisection with its answer, one
that was interrupted before its answer was proved; the bundle beside it is the repository, whose place the file calls @REPO@.
Schema 0002 came out together with 0003: its file is the one of 0001 after the one migration.
"""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, inspect

from bisect_train.store.tables import SCHEMA_VERSION
from tests.support.command_bench import CULPRIT, Bench, culprits_of
from tests.support.git_repos import UserRepo, git
from tests.support.simulated_bisection import Lab

STORES = Path(__file__).parents[1] / "data" / "stores"
VERSIONS = ("0001", "0002", "0003")


def lay_out(version: str, folder: Path, home: Path) -> Lab:
    """Put the file of a version into a home folder and its repository beside it."""
    source = "0001" if version == "0002" else version
    git(folder, "clone", "-q", "-b", "main", str(STORES / f"schema{source}.bundle"), "repo")
    repo = UserRepo(folder / "repo")
    place = home / "bisect-train.db"
    place.write_bytes(gzip.decompress((STORES / f"schema{source}.db.gz").read_bytes()))
    if version != source:
        migrate(place, version)
    with sqlite3.connect(place) as connection:
        connection.execute("UPDATE bisections SET question = replace(question, '@REPO@', ?)", (str(repo.path),))
        connection.execute("UPDATE events SET data = replace(data, '@REPO@', ?)", (str(repo.path),))
    connection.close()
    return Lab(repo, home, repo.git("rev-list", "--reverse", "main").split(), CULPRIT)


def migrate(place: Path, version: str) -> None:
    engine = create_engine(f"sqlite:///{place}")
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", "bisect_train.store:migrations")
        config.attributes["connection"] = connection
        command.upgrade(config, version)
        assert inspect(connection).has_table("queue") and not inspect(connection).has_table("nightly_events")
    engine.dispose()


@pytest.fixture(params=VERSIONS)
def older(request: pytest.FixtureRequest, bench: Bench, tmp_path: Path) -> Bench:
    lab = lay_out(request.param, tmp_path, bench.lab.home)
    bench.monkeypatch.chdir(lab.repo.path)
    bench.lab, bench.script = lab, lab.run_of
    return bench


def test_every_schema_up_to_this_one_has_its_file() -> None:
    kept = {path.name[6:10] for path in STORES.glob("schema*.db.gz")} | {"0002"}
    assert kept >= {f"{number:04d}" for number in range(1, int(SCHEMA_VERSION) + 1)}, "keep a file of the new schema, too"
    assert VERSIONS[-1] == SCHEMA_VERSION


def test_bisections_of_an_older_version_are_listed_shown_and_gone_on_with(older: Bench) -> None:
    listed = older.succeed("list")
    assert "finished" in listed and "interrupted" in listed and "commit number 9" in listed
    with older.store() as store:
        names = {stored.title: stored.id for stored in store.list()}
        before = store.events(names["interrupted"])
    status = older.succeed("status", names["interrupted"])
    assert "proving the answer with fresh runs" in status and "11 finished" in status
    report = older.report("report", names["finished"])
    assert (report["schema"], report["status"]) == (1, "isolated") and culprits_of(report) == [older.commit(CULPRIT)]
    assert "probe_finished" in older.succeed("log", names["finished"])
    done = [event.data["key"] for event in before if event.kind == "probe_finished"]
    report = older.report("resume", names["interrupted"], "--quiet")
    assert report["status"] == "isolated" and culprits_of(report) == [older.commit(CULPRIT)]
    ran = [event.data["key"] for event in older.events(names["interrupted"]) if event.kind == "probe_finished"]
    assert ran[: len(done)] == done and len(ran) == len(set(ran)), "no finished probe is run again"
