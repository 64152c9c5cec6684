"""Linked data by address: fetched once per node, told apart when they change, listed and removed like the rest of a cache."""

from __future__ import annotations

import functools
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from bisect_train.changes.data import digest_links
from bisect_train.core.changes import DataLink
from bisect_train.core.errors import InputError, RecipeError
from bisect_train.core.executor import ProbeLost, ProbeProgress
from bisect_train.core.fingerprint import EndingKind
from bisect_train.recipe import load_recipe
from bisect_train_workers.node import NodeHome
from bisect_train_workers.remote_data import data_shelf
from bisect_train_workers.upkeep import DATA, list_node, remove_item
from tests.support.probes import fingerprint_of, job_of, make_settings, run_job

READ = "import pathlib\nfor path in sorted(pathlib.Path('corpus').rglob('*.txt')):\n    print('read', path, path.read_text())\n"


@pytest.fixture
def bucket() -> Iterator[Any]:
    """A storage in memory that counts what is fetched from it."""
    storage = fsspec.filesystem("memory")
    storage.pipe("/bucket/corpus/a.txt", b"alpha")
    storage.pipe("/bucket/corpus/deep/b.txt", b"beta")
    yield storage
    storage.rm("/bucket", recursive=True)


def settings_with(*links: DataLink) -> Any:
    return make_settings(needs_recorder=False, links=links)


CORPUS = DataLink("memory://bucket/corpus", "corpus")


def log_of(job: Any, home: Path) -> str:
    return str(run_job(job, home)[-1].result.log_tail)  # type: ignore[union-attr]


def test_folder_and_file_come_to_the_checkout(tmp_path: Path, bucket: Any) -> None:
    job = job_of(tmp_path / "r", READ, settings=settings_with(CORPUS, DataLink("memory://bucket/corpus/a.txt", "more/a.txt")))
    events = run_job(job, tmp_path / "n")
    assert ProbeProgress(job.id, "data") in events
    log = events[-1].result.log_tail  # type: ignore[union-attr]
    assert "read corpus/a.txt alpha" in log and "read corpus/deep/b.txt beta" in log


def test_data_are_fetched_once_and_anew_when_they_change(tmp_path: Path, bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []
    real = type(bucket).get
    monkeypatch.setattr(type(bucket), "get", lambda self, *args, **more: (fetched.append(args), real(self, *args, **more))[1])
    job, before = job_of(tmp_path / "r", READ, settings=settings_with(CORPUS)), digest_links((CORPUS,))
    assert "alpha" in log_of(job, tmp_path / "n") and "alpha" in log_of(job, tmp_path / "n")
    assert len(fetched) == 1 and digest_links((CORPUS,)) == before
    bucket.pipe("/bucket/corpus/a.txt", b"another")
    assert digest_links((CORPUS,)) != before
    assert "read corpus/a.txt another" in log_of(job, tmp_path / "n")
    assert len(fetched) == 2


def test_fetched_data_are_listed_and_removed(tmp_path: Path, bucket: Any) -> None:
    log_of(job_of(tmp_path / "r", READ, settings=settings_with(CORPUS)), tmp_path / "n")
    home = NodeHome(tmp_path / "n")
    (item,) = [item for item in list_node(home) if item.kind == DATA]
    assert item.held_by == "" and item.num_bytes > 0
    (copy,) = item.path.rglob("a.txt")
    assert not copy.stat().st_mode & 0o222  # a program must not change what others read
    assert remove_item(home, item) and not data_shelf(home).list_keys()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("memory://bucket/gone", "memory://bucket/gone: there is no such data"),
        ("nosuchkind://bucket/x", "nosuchkind://bucket/x: Protocol not known: nosuchkind"),
    ],
)
def test_address_without_data_is_told_with_the_node(tmp_path: Path, bucket: Any, address: str, said: str) -> None:
    link = DataLink(address, "corpus")
    ending = fingerprint_of(job_of(tmp_path / "r", READ, settings=settings_with(link)), tmp_path / "n").ending
    assert ending.kind is EndingKind.CANNOT_START
    assert ending.message == f"the data for corpus cannot be had on {os.uname().nodename}: {said}"
    with pytest.raises(InputError) as caught:
        digest_links((link,))
    assert said in caught.value.message and not data_shelf(NodeHome(tmp_path / "n")).list_keys()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """The address of a web server with one file."""
    (tmp_path / "www").mkdir()
    (tmp_path / "www/a.txt").write_text("from the web")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "www"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_file_of_a_web_server_comes_to_the_checkout_and_a_changed_one_is_told(tmp_path: Path, web: str) -> None:
    link = DataLink(f"{web}/a.txt?version=1", "corpus/a.txt")
    before = digest_links((link,))
    assert "read corpus/a.txt from the web" in log_of(
        job_of(tmp_path / "r", READ, settings=settings_with(link)), tmp_path / "n"
    )
    assert [path.name for path in (tmp_path / "n/data").rglob("*.txt")] == ["a.txt"]
    assert digest_links((link,)) == before
    (tmp_path / "www/a.txt").write_text("something else")
    assert digest_links((link,)) != before
    with pytest.raises(InputError, match="there is no such data"):
        digest_links((DataLink(f"{web}/gone.txt", "corpus/a.txt"),))
    with pytest.raises(InputError, match="cannot read this data: ConnectionError"):
        digest_links((DataLink("http://127.0.0.1:1/a.txt", "corpus/a.txt"),))


def test_storage_that_fails_loses_the_probe(tmp_path: Path, bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TimeoutError("no answer")

    monkeypatch.setattr(type(bucket), "get", fail)
    last = run_job(job_of(tmp_path / "r", READ, settings=settings_with(CORPUS)), tmp_path / "n")[-1]
    assert isinstance(last, ProbeLost) and "memory://bucket/corpus did not come to" in last.reason
    assert not list((tmp_path / "n/data").glob("*.draft"))


def test_recipe_links_an_address_as_it_is_and_wants_its_place(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("command: [python, t.py]\ndata: {link: [{from: 's3://bucket/corpus', to: data/corpus}]}\n")
    (link,) = load_recipe(path).links_from(tmp_path)
    assert link == DataLink("s3://bucket/corpus", "data/corpus") and link.is_remote
    assert not any(DataLink(source, "x").is_remote for source in ("/data/x", "data:x", "C:/x", "/a/s3://x"))
    path.write_text("command: [python, t.py]\ndata: {link: ['s3://bucket/corpus']}\n")
    with pytest.raises(RecipeError, match="to: PATH_IN_THE_CHECKOUT"):
        load_recipe(path)
