"""Files for their owner alone, folders that nobody put there before, pythons that run nothing of where they start."""

from __future__ import annotations

import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bisect_train.changes.packages.releases import _METADATA_BYTES, _requires_python
from bisect_train.cli.environments import installed_packages
from bisect_train.cli.serving import coordinator_command
from bisect_train.core.changes import DataLink
from bisect_train.core.interpreters import module_command
from bisect_train.store.home import ensure_home, open_store
from bisect_train_workers import probe_folders
from bisect_train_workers.data_links import CannotStartError, link_data
from bisect_train_workers.node import NodeError, NodeHome
from bisect_train_workers.probe_folders import take_private_folder


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_home_and_database_are_their_owners_alone(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    store = open_store(shared)
    store.create({"kind": "run"}, title="x")
    assert {mode_of(path) for path in shared.glob("bisect-train.db*")} == {0o600}, "SQLite's own files beside it, too"
    store.close()
    assert mode_of(ensure_home(tmp_path / "new")) == 0o700


def test_database_that_was_there_keeps_its_mode_and_content(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    (tmp_path / "bisect-train.db").chmod(0o660)
    open_store(tmp_path).close()
    assert mode_of(tmp_path / "bisect-train.db") == 0o660


def test_temporary_folder_that_somebody_else_made_first_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = NodeHome(tmp_path / ("long" * 20))
    with take_private_folder(home, "job") as folder:
        assert mode_of(folder.tmp) == 0o700 and mode_of(folder.base) == 0o700
    planted = tmp_path / "planted"
    planted.mkdir()
    monkeypatch.setattr(probe_folders, "_tmp_of", lambda base: planted)
    with pytest.raises(NodeError, match="somebody else's"), take_private_folder(home, "job"):
        pass


@pytest.mark.parametrize("target", ["../x", "/etc/x", "out/x", ".git/hooks/post-checkout", "a/../../x", "out"])
def test_data_is_linked_inside_the_checkout_only(tmp_path: Path, target: str) -> None:
    checkout, elsewhere, data = tmp_path / "checkout", tmp_path / "elsewhere", tmp_path / "data"
    for folder in (checkout / ".git/info", elsewhere):
        folder.mkdir(parents=True)
    data.write_text("x")
    (checkout / "out").symlink_to(elsewhere)  # as a commit can hold it
    with pytest.raises(CannotStartError):
        link_data(checkout, [DataLink(str(data), target)])
    assert list(elsewhere.iterdir()) == [] and not (tmp_path / "x").exists()


def test_python_that_is_asked_something_runs_nothing_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "runpy", "bisect_train", "click", "importlib"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'hit')!r}, 'a').close()\n")
    monkeypatch.chdir(tmp_path)
    assert installed_packages(sys.executable)
    command = [*coordinator_command("nobody", "local")[:4], "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("bisect-train, version")
    done = subprocess.run(module_command(sys.executable, "json.tool", "--help"), capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "usage" in done.stdout
    assert not (tmp_path / "hit").exists()
    subprocess.run([sys.executable, "-m", "json.tool"], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert (tmp_path / "hit").exists(), "python itself would"


def test_wheel_that_unpacks_to_gigabytes_is_read_to_a_limit(tmp_path: Path) -> None:
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x-1.dist-info/METADATA", b"A: " + b"a" * (2 * _METADATA_BYTES) + b"\nRequires-Python: >=3.8\n")
    assert _requires_python(wheel) is None
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("../../../x-1.dist-info/METADATA", b"Requires-Python: >=3.8\n")
    assert _requires_python(wheel) == ">=3.8" and sorted(tmp_path.iterdir()) == [wheel]
