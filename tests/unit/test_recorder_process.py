"""The recorder without torch, in real processes of every python at hand from 3.8 on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

RECORDER = Path(__file__).parents[2] / "workers" / "bisect_train_workers" / "recorder"


def find_pythons() -> list[str]:
    """Return one interpreter of each minor version from 3.8 on: pyenv's, else this one."""
    found = sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"), key=lambda p: int(p.parts[-3].split(".")[1]))
    return [str(path) for path in found if int(path.parts[-3].split(".")[1]) >= 8] or [sys.executable]


every_python = pytest.mark.parametrize("python", find_pythons(), ids=lambda path: Path(path).parts[-3])


def install(folder: Path, **settings: Any) -> Path:
    """Copy the recorder, write its settings, return the folder for PYTHONPATH."""
    target = folder / "recorder"
    shutil.copytree(RECORDER, target, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "settings.json").write_text(json.dumps({"out": str(folder / "out"), "root": str(folder), **settings}))
    return target


def run(python: str, folder: Path, *arguments: str, path: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run python in the folder with a PYTHONPATH."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": path, **env}
    return subprocess.run([python, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the only record file."""
    (path,) = (folder / "out").glob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def events(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the data of the events of one name."""
    return [r["data"] for r in records(folder) if r["type"] == "event" and r["name"] == name]


FAILING = """
import sys, random, helper
print(random.random(), random.Random(3).random())
assert helper.__loader__ is helper.__spec__.loader and "exec_module" not in vars(random.__loader__)
def inner(): raise ValueError("bad value 12 in /tmp/x.bin")
def outer(): inner()
outer()
"""


@every_python
def test_recorder_of_a_failing_program_writes_start_exception_imports_and_exit(python: str, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "train.py").write_text(FAILING)
    path = install(tmp_path, seed_idx=1)
    done = run(python, tmp_path, "train.py", path=str(path), RANK="2", WORLD_SIZE="4")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("ValueError: bad value 12 in /tmp/x.bin"), "the user's own traceback is shown"
    start = records(tmp_path)[0]
    assert (start["type"], start["rank"], start["world_size"], start["argv"]) == ("start", 2, 4, ["train.py"])
    assert start["channel"] == "sitecustomize"
    assert start["python"].startswith("3.")
    (error,) = events(tmp_path, "exception")
    assert error["functions"] == ["<module>", "outer", "inner"]
    assert error["signature"] == "ValueError: bad value # in <path> @ <module> > outer > inner"
    assert error["missing_module"] is None
    assert events(tmp_path, "imports")[-1] == {"tracked": ["helper.py", "train.py"], "outside": {}}
    assert events(tmp_path, "exit") == [{"exit": "atexit", "code": 1}]
    assert events(tmp_path, "recorder_error") == []
    assert events(tmp_path, "seed_shifted") == [{"function": "random.Random.seed", "seed": 3}]
    again = run(python, tmp_path, "-c", "import random; print(random.Random(1000006).random())", path="")
    assert done.stdout.split()[1] == again.stdout.strip()


EDITABLE = """
import sys, json
finder = sys.modules["__editable___demo_finder"]
print(json.dumps([finder.MAPPING, finder.NAMESPACES, sys.path]))
import plain_module
"""


@every_python
def test_recorder_redirects_editable_installs_and_reports_what_it_could_not(python: str, tmp_path: Path) -> None:
    repo, root = tmp_path / "repo", tmp_path / "checkout"
    for folder in (repo / "src", root / "src"):
        folder.mkdir(parents=True)
        (folder / "plain_module.py").write_text("")
        (folder / "early_module.py").write_text("")
    (root / "train.py").write_text(EDITABLE)
    path = install(tmp_path, root=str(root), redirect_from=str(repo))
    # What a .pth file of setuptools leaves behind, set up by a sitecustomize that runs before.
    before = tmp_path / "before"
    before.mkdir()
    (before / "sitecustomize.py").write_text(
        f"""
import sys, types
sys.path.append({str(repo / "src")!r})
import early_module
finder = sys.modules["__editable___demo_finder"] = types.ModuleType("__editable___demo_finder")
finder.MAPPING, finder.NAMESPACES = {{"demo": {str(repo / "demo")!r}}}, {{"ns": [{str(repo / "ns")!r}]}}
sys.path.remove({str(before)!r})
exec(open({str(path / "sitecustomize.py")!r}).read(), {{"__file__": {str(path / "sitecustomize.py")!r}}})
"""
    )
    done = run(python, tmp_path, "checkout/train.py", path=f"{before}{os.pathsep}{path}")
    assert done.returncode == 0, done.stderr
    mapping, namespaces, sys_path = json.loads(done.stdout)
    assert mapping == {"demo": str(root / "demo")}
    assert namespaces == {"ns": [str(root / "ns")]}
    assert str(root / "src") in sys_path
    assert str(repo / "src") not in sys_path
    imports = events(tmp_path, "imports")[-1]
    assert imports["tracked"] == ["src/plain_module.py", "train.py"]
    assert imports["outside"] == {"early_module": str(repo / "src" / "early_module.py")}


@every_python
def test_recorder_runs_the_sitecustomize_it_shadows_and_survives_a_broken_one(python: str, tmp_path: Path) -> None:
    path = install(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import sys; sys.is_shadowed_run = True; raise RuntimeError('theirs')")
    program = "import sys; print(sys.is_shadowed_run); sys.exit(3)"
    done = run(python, tmp_path, "-c", program, path=f"{path}{os.pathsep}{other}")
    assert (done.returncode, done.stdout) == (3, "True\n")
    assert "theirs" in done.stderr
    assert events(tmp_path, "exit") == [{"exit": "atexit", "code": 3}]


@every_python
def test_recorder_without_settings_does_nothing(python: str, tmp_path: Path) -> None:
    path = install(tmp_path)
    (path / "settings.json").unlink()
    done = run(python, tmp_path, "-c", "import sys; print('_bisect_train_recorder' in sys.modules)", path=str(path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")
    assert not (tmp_path / "out").exists()


def test_recorder_with_broken_settings_says_so_and_lets_the_program_run(tmp_path: Path) -> None:
    path = install(tmp_path)
    (path / "settings.json").write_text("{")
    done = run(sys.executable, tmp_path, "-c", "print(1)", path=str(path))
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "bisect-train: the recorder did not start" in done.stderr


REPLACES_HOOK = """
import os, sys
if os.fork() == 0:
    sys.exit(5)
os.wait()
sys.excepthook = lambda *args: None
import not_there
"""


def test_recorder_in_forks_is_silent_and_finds_exceptions_behind_a_replaced_hook(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(REPLACES_HOOK)
    done = run(sys.executable, tmp_path, "train.py", path=str(install(tmp_path)))
    assert done.returncode == 1
    assert [e["missing_module"] for e in events(tmp_path, "exception")] == ["not_there"]
    assert len(events(tmp_path, "exit")) == 1


# It speaks from inside the function: a signal may come right after.
SLEEPS = "import os, sys, time\ndef waits_here(): print(os.getpid(), flush=True); time.sleep(50)\nwaits_here()\n"


def test_recorder_dumps_stacks_on_sigusr1(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SLEEPS)
    env = {**os.environ, "PYTHONPATH": str(install(tmp_path))}
    process = subprocess.Popen([sys.executable, "train.py"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        stacks = tmp_path / "out" / f"stacks-rank0-pid{pid}.txt"
        assert stacks.exists(), "only a process with this file may be signalled"
        # the first signal may come before the program has entered the function
        while "waits_here" not in stacks.read_text():
            assert process.poll() is None
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.05)
    finally:
        process.kill()
        process.communicate()


STARTS_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "child.py"], stdout=subprocess.PIPE, text=True, start_new_session=True)
print(child.stdout.readline().strip(), flush=True)
time.sleep(50)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's request exists on Linux only")
def test_recorder_makes_a_child_in_its_own_session_die_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STARTS_CHILD)
    (tmp_path / "child.py").write_text(SLEEPS)
    env = {**os.environ, "PYTHONPATH": str(install(tmp_path))}
    process = subprocess.Popen([sys.executable, "train.py"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    child_pid = int(process.stdout.readline())
    assert is_alive(child_pid)
    process.kill()
    process.communicate()
    wait_until_dead(child_pid)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_dead(pid: int) -> None:
    """Return once the process is gone; the test's time limit ends an endless wait."""
    while is_alive(pid):
        pass


OUTSIDE = """
import os, sqlite3, subprocess, sys, tempfile
home = os.environ["HOME"]
def write(path, mode="w"):
    with open(path, mode) as file: file.write("x")
write(home + "/cache.bin"); write(os.fsencode(home + "/./more.txt"), "a")
write("inside.txt"); write(os.path.join(tempfile.gettempdir(), "t")); write("../out/y"); write(home + "/x.pyc")
write(home + "/part"); os.replace(home + "/part", home + "/whole")
os.rename("folder", home + "/folder")
os.close(os.open(home + "/lock", os.O_RDWR | os.O_CREAT)); open(1, "w", closefd=False).close(); write("/dev/null")
sqlite3.connect(home + "/base.db").close()
for path in (home + "/none/x", home + "/gone"):
    try: write(path, "r+")
    except OSError: pass
for path in (home + "/data.txt", "inside.txt", "/etc/hosts", "/proc/self/stat", os.__file__, sys.executable):
    open(path, "rb").close()
if os.fork() == 0:
    write(home + "/by_fork"); os._exit(0)
os.wait()
"""


@every_python
def test_recorder_lists_files_outside_the_checkout(python: str, tmp_path: Path) -> None:
    root, home = tmp_path / "probe" / "checkout", tmp_path / "home"
    for folder in (root / "folder", home, root.parent / "tmp"):
        folder.mkdir(parents=True)
    (home / "data.txt").write_text("")
    (root / "train.py").write_text(OUTSIDE)
    path = install(root.parent, root=str(root))
    done = run(python, root, "train.py", path=str(path), HOME=str(home), TMPDIR=str(root.parent / "tmp"))
    assert done.returncode == 0, done.stderr
    found = events(root.parent, "outside_files")[-1]
    names = ["base.db", "cache.bin", "folder", "lock", "more.txt", "whole"]
    assert found["written"] == [str(home / name) for name in names]
    assert found["read"] == [str(home / name) for name in ("base.db", "data.txt", "lock")]
    assert events(root.parent, "recorder_error") == []


@every_python
def test_recorder_of_a_program_that_stays_inside_lists_no_files(python: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import json, sqlite3, decimal\nopen('log.txt', 'w').close()\nopen('log.txt').close()\n")
    done = run(python, tmp_path, "train.py", path=str(install(tmp_path)), TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert events(tmp_path, "outside_files") == [{"written": [], "read": []}]


def test_recorder_keeps_a_bounded_number_of_files_and_leaves_the_temporary_folder_to_the_program(tmp_path: Path) -> None:
    root, home = tmp_path / "probe", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    path = install(root)
    program = "import sys\nprint('tempfile' in sys.modules)\nfor idx in range(250): open(f'{sys.argv[1]}/{idx}', 'w').close()\n"
    done = run(sys.executable, root, "-c", program, str(home), path=str(path), TMPDIR=str(root))
    assert done.stdout == "False\n", "tempfile would keep the folder that it finds now"
    assert len(events(root, "outside_files")[-1]["written"]) == 200
