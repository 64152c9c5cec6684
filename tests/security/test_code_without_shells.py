"""What the package's own code must never do, read from its source; and expressions that no line can keep busy."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import bisect_train
import bisect_train_workers

SOURCES = [path for package in (bisect_train, bisect_train_workers) for path in Path(package.__file__).parent.rglob("*.py")]
NEVER = {
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "asyncio.create_subprocess_shell"),
    *("eval", "pickle.load", "pickle.loads", "marshal.loads", "shelve.open", "dill.loads", "joblib.load"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load", "yaml.unsafe_load_all", "yaml.full_load_all"),
    *("torch.load", "tempfile.mktemp", "shutil.unpack_archive", "xml.etree.ElementTree.parse"),
}
RUNS_CODE = {"child.py"}
"""The warm start runs the user's program in a process of its own."""
WALK = """
import importlib, json, pkgutil, re, signal, sys
from pathlib import Path
import bisect_train, bisect_train_workers
sys.path.insert(0, str(Path(bisect_train_workers.__file__).parent / "recorder"))
import _bisect_train_recorder
UNITS = sys.argv[1:]
LENGTH = 1500

def patterns():
    for package in (bisect_train, bisect_train_workers, _bisect_train_recorder):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if ".migrations." in found.name or ".recorder." in found.name:
                continue
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                held = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
                for item in held:
                    if isinstance(item, re.Pattern):
                        yield f"{found.name}.{name}", item

def give_up(*_):
    raise TimeoutError

signal.signal(signal.SIGALRM, give_up)
seen, slow = {}, []
for name, pattern in patterns():
    seen.setdefault((pattern.pattern, pattern.flags), (name, pattern))
for name, pattern in seen.values():
    for unit in UNITS:
        for text in (unit * (LENGTH // len(unit)), "x" + unit * (LENGTH // len(unit)) + "!"):
            signal.alarm(10)
            try:
                pattern.search(text.encode() if isinstance(pattern.pattern, bytes) else text)
            except TimeoutError:
                slow.append((name, unit))
            signal.alarm(0)
print(json.dumps([len(seen), slow]))
"""
UNITS = [
    *(
        "a",
        "1",
        "-",
        ".",
        " ",
        "/",
        ":",
        '"',
        "'",
        "=",
        "@",
        "[",
        "{",
        "(",
        "\\\\",
        "\\n",
        "\\t",
        "\\r",
        "#",
        "a.",
        "1.",
        "1,",
        "://",
    ),
    *(
        "x=",
        '"a',
        "_a",
        "\\x1b[",
        "\\x1b]",
        "rank0",
        "deadbeef",
        "a/",
        "--a ",
        "&x=",
        "A",
        "aA",
        "1x",
        'File "a',
        "1e1",
        "imported a from b ",
    ),
    *("password=", "Root Cause (first observed failure):", "rank: 1 ", "ab ", "a-", "..", "%", "$", "<a"),
]


@cache
def calls() -> tuple[tuple[str, str, bool], ...]:
    """Return every call: where it is, the dotted name of what is called, whether it is told to use a shell."""
    nodes = [(path, node) for path in SOURCES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    found = [(path, node) for path, node in nodes if isinstance(node, ast.Call)]
    return tuple(
        (f"{path.name}:{node.lineno}", ast.unparse(node.func), any(item.arg == "shell" for item in node.keywords))
        for path, node in found
        if isinstance(node.func, (ast.Name, ast.Attribute))
    )


def test_code_calls_no_shell_and_loads_nothing_that_can_run() -> None:
    assert [(where, name) for where, name, _ in calls() if name in NEVER] == []


def test_code_hands_nothing_to_a_shell() -> None:
    assert [where for where, _, has_shell in calls() if has_shell] == []


def test_code_runs_text_as_code_in_the_users_process_only() -> None:
    runs = [where for where, name, _ in calls() if name in ("exec", "builtins.exec")]
    assert {where.partition(":")[0] for where in runs} <= RUNS_CODE


def test_archives_are_read_and_never_unpacked() -> None:
    assert [where for where, name, _ in calls() if name.endswith((".extractall", ".extract"))] == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_expression_of_ours_is_kept_busy_by_a_line() -> None:
    units = [unit.encode().decode("unicode_escape") for unit in UNITS]
    done = subprocess.run([sys.executable, "-c", WALK, *units], capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    num, slow = json.loads(done.stdout.splitlines()[-1])
    assert num > 100 and slow == []
