"""Which releases of a package lie between two versions."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bisect_train.changes.packages import releases
from bisect_train.changes.packages.interpreters import find_interpreter
from bisect_train.changes.packages.releases import releases_between
from bisect_train.core.errors import InputError, MachineError
from tests.support.wheels import make_wheel


def put(folder: Path, *versions: str, name: str = "toyopt", **options: str) -> None:
    for version in versions:
        make_wheel(folder, name, version, {}, **options)


def test_releases_of_a_folder_come_in_the_order_of_versions(tmp_path: Path) -> None:
    put(tmp_path, "1.0", "1.2", "1.10", "2.0", "2.1")
    put(tmp_path, "1.5", name="toyopt-extra")
    (tmp_path / "toyopt-1.11.tar.gz").touch()
    (tmp_path / "notes.txt").touch()
    assert releases_between("ToyOpt", "1.0", "2.0", find_links=[tmp_path], index="none") == ("1.2", "1.10", "1.11", "2.0")


def test_a_downgrade_is_walked_backwards(tmp_path: Path) -> None:
    put(tmp_path, "1.0", "1.1", "1.2")
    assert releases_between("toyopt", "1.2", "1.0", find_links=[tmp_path], index="none") == ("1.1", "1.0")


def test_prereleases_count_only_where_an_end_is_one(tmp_path: Path) -> None:
    put(tmp_path, "1.0", "1.1rc1", "1.1", "1.2.dev3", "2.0rc1")
    assert releases_between("toyopt", "1.0", "1.1", find_links=[tmp_path], index="none") == ("1.1",)
    assert releases_between("toyopt", "1.1", "2.0rc1", find_links=[tmp_path], index="none") == ("1.2.dev3", "2.0rc1")


def test_releases_that_this_interpreter_cannot_install_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, "1.0", "2.0")
    put(tmp_path, "1.1", tag="cp27-cp27m-win32")
    put(tmp_path, "1.2", requires_python="<3.0")
    assert releases_between("toyopt", "1.0", "2.0", find_links=[tmp_path], index="none") == ("2.0",)


def test_mistakes_are_told(tmp_path: Path) -> None:
    put(tmp_path, "1.0", "2.0")
    for low, high, links, said in (
        ("1.0", "2.5", [tmp_path], f"toyopt 2.5 was not found in {tmp_path}"),
        ("1.0", "2.5", [], "was not found in no place at all"),
        ("one", "2.0", [tmp_path], "'one' is no version"),
        ("1.0", "2.0", [tmp_path / "none"], "there is no such folder"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            releases_between("toyopt", low, high, find_links=links, index="none")
        assert caught.value.hint


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """A package index that this process serves: 1.1 is yanked, 1.2 is for another python."""
    links = "".join(
        f'<a href="../../files/toyopt-{version}-py3-none-any.whl" {more}>toyopt-{version}-py3-none-any.whl</a>\n'
        for version, more in (
            ("1.0", ""),
            ("1.1", 'data-yanked="broken"'),
            ("1.2", 'data-requires-python="&lt;3"'),
            ("1.3", ""),
        )
    )
    page = tmp_path / "simple/toyopt/index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    handler = partial(_Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple/"
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_index_is_asked_and_yanked_releases_are_left_out(index: str, tmp_path: Path) -> None:
    pytest.importorskip("pypi_simple", reason="pypi-simple is not installed: pip install 'bisect-train[packages]'")
    assert releases_between("toyopt", "1.0", "1.3", index=index) == ("1.3",)
    assert releases_between("toyopt", "1.0", "1.1", index=index) == ("1.1",)  # an end that is yanked stays
    put(tmp_path / "own", "1.2.5")
    assert releases_between("toyopt", "1.0", "1.3", index=index, find_links=[tmp_path / "own"]) == ("1.2.5", "1.3")
    assert releases_between("toyopt", "1.0", "1.3", index=(tmp_path / "simple").as_uri()) == ("1.3",)
    with pytest.raises(InputError, match="other 2 was not found"):
        releases_between("other", "1", "2", index=index)


def test_an_index_that_does_not_answer_is_trouble_of_the_machine_and_shows_no_password() -> None:
    pytest.importorskip("pypi_simple", reason="pypi-simple is not installed: pip install 'bisect-train[packages]'")
    with pytest.raises(MachineError) as caught:
        releases_between("toyopt", "1", "2", index="http://me:secret@127.0.0.1:9/simple/")
    assert "127.0.0.1:9" in caught.value.message and "secret" not in str(caught.value)


def test_without_the_library_an_index_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypi_simple", None)
    with pytest.raises(MachineError) as caught:
        releases_between("toyopt", "1", "2", index="http://127.0.0.1:9/simple/")
    assert "bisect-train[packages]" in caught.value.hint


def test_the_stronger_of_pips_settings_wins() -> None:
    listed = "global.index-url='https://a/simple'\n:env:.index-url='https://b/simple'\nglobal.find-links='/x /y'\nnonsense\n"
    assert releases._settings_of(listed) == {"index-url": "https://b/simple", "find-links": "/x /y"}


def test_pips_settings_say_where_releases_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "1.0", "1.1", "1.2")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert releases_between("toyopt", "1.0", "1.2") == ("1.1", "1.2")


def test_another_interpreter_says_its_own_tags(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert find_interpreter(str(python)) == find_interpreter()
    with pytest.raises(MachineError, match="cannot be asked"):
        find_interpreter(str(tmp_path / "none"))
