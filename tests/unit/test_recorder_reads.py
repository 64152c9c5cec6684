"""What the recorder tells of a program's reads, in real processes of every python at hand from 3.8 on."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from test_recorder_process import events, every_python, install, run


def told(folder: Path, python: str, source: str, *, name: str = "train.py", **env: str) -> dict[str, Any]:
    """Run a program in a checkout and return what it told; the recorder lies outside of the checkout."""
    checkout = folder / "checkout"
    checkout.mkdir(exist_ok=True)
    path = checkout / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    recorder = folder / "recorder"
    if not recorder.exists():
        install(folder, root=str(checkout))
    done = run(python, checkout, name, path=str(recorder), **env)
    assert done.returncode == 0, done.stderr
    assert events(folder, "recorder_error") == []
    (found,) = events(folder, "files_read")
    return found


def write(folder: Path, **files: str) -> None:
    """Write files of the checkout; `__` in a name stands for a slash, a name without a dot is a python file."""
    for name, text in files.items():
        path = folder / "checkout" / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


IMPORTS = """
import pkg.part
import other
open("notes.md").read()
try: open("missing.yaml")
except OSError: pass
"""


@every_python
def test_program_tells_its_modules_and_opened_files_tried_ones_too(python: str, tmp_path: Path) -> None:
    write(tmp_path, pkg__start="", pkg__part="", pkg__unused="", other="", unused="", tests__test_a="")
    (tmp_path / "checkout/pkg/__init__.py").write_text("")
    (tmp_path / "checkout/notes.md").write_text("")
    found = told(tmp_path, python, IMPORTS)
    assert found["files"] == ["missing.yaml", "notes.md", "other.py", "pkg/__init__.py", "pkg/part.py", "train.py"]
    assert found["searched"] == ["", "pkg"], "imports list the folders that they search"
    assert (found["folders"], found["doubts"], found["launcher"]) == ([], [], False)


@every_python
@pytest.mark.parametrize("is_prefixed", [False, True])
def test_module_from_valid_byte_code_is_told_as_its_source(python: str, tmp_path: Path, is_prefixed: bool) -> None:
    write(tmp_path, helper="X = 1", loader="import helper, sys\ndel sys.modules['helper']")
    prefix = {"PYTHONPYCACHEPREFIX": str(tmp_path / "cache")} if is_prefixed else {}
    recorder = install(tmp_path, root=str(tmp_path / "checkout"))
    assert run(python, tmp_path / "checkout", "-c", "import loader", path=str(recorder), **prefix).returncode == 0
    caches = list((tmp_path / "cache" if is_prefixed else tmp_path / "checkout/__pycache__").rglob("helper.*.pyc"))
    assert len(caches) == 1, "the byte code is there, so the source is not opened again"
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    found = told(tmp_path, python, "import loader\n", **prefix)
    assert found["files"] == ["helper.py", "loader.py", "train.py"], "though the module is gone at the end"


LISTS = """
import os, glob, pathlib
os.listdir("a"); os.listdir(b"b")
with os.scandir("c") as found: list(found)
glob.glob("d/*.txt"); list(pathlib.Path("e").glob("*.txt"))
descriptor = os.open(os.path.abspath("f"), os.O_RDONLY); os.listdir(descriptor); os.close(descriptor)
os.chdir("g"); os.listdir()
"""


@every_python
def test_folders_that_the_program_lists_are_told_apart_from_those_that_imports_search(python: str, tmp_path: Path) -> None:
    for name in "abcdefgh":
        (tmp_path / "checkout" / name).mkdir(parents=True)
    found = told(tmp_path, python, LISTS)
    assert found["folders"] == list("abcdefg")
    assert "" in found["searched"] and not {"a", "h"} & {*found["searched"]}
    assert found["doubts"] == []


@every_python
def test_installed_packages_looked_for_are_no_listing_of_the_program(python: str, tmp_path: Path) -> None:
    source = "from importlib import metadata\nlist(metadata.distributions())\n"
    found = told(tmp_path, python, source)
    assert found["folders"] == [] and "" in found["searched"]


LINKED = """
open("link.txt").read(); open("folder/inner.txt").read(); open(OUTSIDE).read()
import os
os.rename("moved.txt", "target.txt")
"""


@every_python
def test_symbolic_links_are_told_with_what_they_lead_to(python: str, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "real").mkdir(parents=True)
    for path in (checkout / "real/inner.txt", checkout / "real/file.txt", checkout / "moved.txt", checkout / "deep.txt"):
        path.write_text("")
    (checkout / "link.txt").symlink_to("real/file.txt")
    (checkout / "folder").symlink_to("real")
    (tmp_path / "outside").symlink_to(checkout / "deep.txt")
    found = told(tmp_path, python, LINKED.replace("OUTSIDE", repr(str(tmp_path / "outside"))))
    expected = {"link.txt", "real/file.txt", "folder/inner.txt", "real/inner.txt", "deep.txt", "moved.txt", "target.txt"}
    assert {*found["files"]} == expected | {"train.py"}


@every_python
@pytest.mark.parametrize(
    ("source", "doubt"),
    [
        ("import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', ''])", "subprocess.Popen "),
        ("import os\nos.system('true')", "os.system"),
        ("import os\nif os.fork() == 0: os._exit(0)\nos.wait()", "os.fork"),
        ("import os, sys\nos.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)", "os.posix_spawn"),
        ("import os\nos.makedirs('.git', exist_ok=True)\nopen('.git/HEAD', 'w')", "it reads .git"),
        ("import os\nos.makedirs('.git/refs', exist_ok=True)\nos.listdir('.git/refs')", "it reads .git"),
    ],
)
def test_whatever_another_process_may_read_is_a_doubt(python: str, tmp_path: Path, source: str, doubt: str) -> None:
    found = told(tmp_path, python, source)
    assert [text for text in found["doubts"] if text.startswith(doubt)], found["doubts"]
    assert len(found["doubts"]) == 1 or doubt == "subprocess.Popen ", "it may use posix_spawn, which says so as well"


@every_python
def test_program_that_becomes_another_one_leaves_two_starts_and_one_list(python: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os, sys, helper\nos.execv(sys.executable, [sys.executable, 'real.py'])\n")
    for name in ("helper.py", "real.py"):
        (tmp_path / name).write_text("")
    assert run(python, tmp_path, "train.py", path=str(install(tmp_path))).returncode == 0
    (path,) = (tmp_path / "out").glob("*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["type"] for line in lines].count("start") == 2
    (found,) = events(tmp_path, "files_read")
    assert "helper.py" not in found["files"], "so whoever reads the list must count the starts"


SPAWNS = """
import multiprocessing
def work(): pass
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start(); child.join()
"""


@every_python
def test_spawned_process_is_a_doubt(python: str, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "train.py").write_text(SPAWNS)
    recorder = install(tmp_path, root=str(checkout))
    assert run(python, checkout, "train.py", path=str(recorder)).returncode == 0
    lines = [json.loads(line) for path in (tmp_path / "out").glob("*.jsonl") for line in path.read_text().splitlines()]
    doubts = [line["data"]["doubts"] for line in lines if line.get("name") == "files_read"]
    assert any("multiprocessing started a process" in item for item in doubts)


@every_python
def test_native_code_of_the_checkout_is_a_doubt(python: str, tmp_path: Path) -> None:
    source = "import ctypes, os\ntry: ctypes.CDLL(os.path.abspath('mine.so'))\nexcept OSError: pass\n"
    assert told(tmp_path, python, source)["doubts"] == ["it loads native code of the checkout"]


@every_python
@pytest.mark.parametrize(("ending", "num_told"), [("os._exit(0)", 0), ("sys.exit(3)", 1), ("raise ValueError", 1)])
def test_program_tells_at_its_end_unless_it_is_cut_off(python: str, tmp_path: Path, ending: str, num_told: int) -> None:
    (tmp_path / "train.py").write_text(f"import os, sys\nopen('a.txt', 'w').close()\n{ending}\n")
    run(python, tmp_path, "train.py", path=str(install(tmp_path)))
    assert len(events(tmp_path, "files_read")) == num_told


@every_python
def test_more_files_than_are_kept_are_a_doubt(python: str, tmp_path: Path) -> None:
    source = "for idx in range(5001):\n    try: open('x%d.txt' % idx)\n    except OSError: pass\n"
    found = told(tmp_path, python, source)
    assert found["doubts"] == ["too many files"] and len(found["files"]) == 5000


def test_recorder_that_was_loaded_late_is_a_doubt(tmp_path: Path) -> None:
    recorder = install(tmp_path)
    (recorder / "sitecustomize.py").unlink()
    source = "import _bisect_train_recorder\n_bisect_train_recorder.start_from_torch_backends()\n"
    (tmp_path / "train.py").write_text(source)
    assert run(sys.executable, tmp_path, "train.py", path=os.fspath(recorder)).returncode == 0
    (found,) = events(tmp_path, "files_read")
    assert found["doubts"] == ["the recorder was loaded late"]


@every_python
def test_a_relative_open_that_may_be_below_another_folder_is_a_doubt(tmp_path: Path, python: str) -> None:
    source = """
import os
os.makedirs("conf", exist_ok=True)
folder = os.open(os.path.abspath("conf"), os.O_RDONLY)
os.close(os.open("lr.yaml", os.O_RDWR | os.O_CREAT, dir_fd=folder))
os.close(folder)
"""
    assert "os.open" in told(tmp_path, python, source)["doubts"]
