"""Requirement, lock, project and environment files; command lines of two ends; what pip and indexes say."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache

import yaml

from bisect_train.changes.arguments import diff_commands, interpreted_by
from bisect_train.changes.packages import read_packages, read_packages_text
from bisect_train.changes.packages.diff import diff_packages
from bisect_train.changes.packages.pins import name_of_reference
from bisect_train.core.errors import InputError
from bisect_train.core.secrets import mask_command
from tests.fuzz.engine import Target
from tests.fuzz.places import folder, write
from tests.fuzz.text_changes import BOMB, change_text, to_bytes
from tests.fuzz.value_changes import change_value, json_text, toml_text

LINUX = {"sys_platform": "linux", "platform_machine": "x86_64", "python_version": "3.11", "python_full_version": "3.11.4"}
REQUIREMENTS = (
    "# c\n--index-url https://u:p@index.example/simple\nTorch==2.5.1 \\\n    --hash=sha256:aa\n"
    "numpy>=1.2,<2   # n\nfoo[B,a]~=1.4\n",
    'a==1; python_version < "3.10"\na==2; python_version >= "3.10"\n-r base.txt\n-c limits.txt\nb @ https://h/b-1.0.tar.gz\n',
    "-e git+https://h/r.git@abc#egg=thing&subdirectory=x\n./local\n../other/pkg\nfile:///x/y-1.0-py3-none-any.whl\nhttps://h/z-2.zip#sha256=1\n",
    "# Editable install with no version control (mine==1.0)\n-e /home/me/mine\ntorch==2.1.0+cu118\nx===1.1.1w\ny!=2.*\n",
)
_UV = {
    "version": 1,
    "package": [
        {
            "name": "proj",
            "version": "0.1",
            "source": {"virtual": "."},
            "dependencies": [{"name": "a"}, {"name": "b", "extra": ["x"]}],
        },
        {"name": "a", "version": "1.0", "source": {"registry": "https://i"}, "resolution-markers": ["sys_platform == 'linux'"]},
        {
            "name": "b",
            "version": "2.0",
            "source": {"git": "https://h/b?subdirectory=s&rev=main#abc"},
            "optional-dependencies": {"x": [{"name": "c", "marker": "python_version > '3.8'"}]},
        },
        {"name": "c", "version": "3.0", "source": {"path": "../c"}},
    ],
}
_POETRY = {
    "package": [
        {"name": "a", "version": "1.0", "optional": False, "groups": ["main"], "dependencies": {"b": ">=1"}, "markers": ""},
        {
            "name": "b",
            "version": "2.0",
            "category": "main",
            "source": {"type": "git", "url": "https://h/b", "resolved_reference": "abc", "subdirectory": "s"},
        },
        {
            "name": "c",
            "version": "3",
            "source": {"type": "directory", "url": "../c"},
            "markers": {"main": "sys_platform == 'linux'"},
        },
    ],
    "metadata": {"lock-version": "2.0"},
}
_PIPFILE = {
    "default": {
        "a": {"version": "==1.0", "markers": "python_version >= '3.8'", "extras": ["x"]},
        "b": "*",
        "c": {"git": "https://h/c", "ref": "abc"},
        "d": {"path": "./d"},
    },
    "develop": {},
}
_PYLOCK = {
    "lock-version": "1.0",
    "packages": [
        {"name": "a", "version": "1.0", "marker": "sys_platform == 'linux'", "dependencies": [{"name": "b"}]},
        {"name": "b", "vcs": {"type": "git", "url": "https://h/b", "commit-id": "abc"}},
        {"name": "c", "directory": {"path": "c"}},
        {"name": "d", "archive": {"url": "https://h/d-1.zip"}},
    ],
}
_PROJECT = {
    "project": {"name": "p", "dependencies": ["a>=1", "b[x]==2; python_version > '3.8'"], "dynamic": ["version"]},
    "tool": {},
}
_CONDA = {
    "name": "e",
    "dependencies": ["python=3.11", "numpy=1.26.4=py311", "c::x>=1,<2", "y", {"pip": ["torch==2.1", "-e ."]}],
}
_CONDA_LOCK = {
    "version": 1,
    "package": [
        {
            "name": "a",
            "version": "1.0",
            "platform": "linux-64",
            "manager": "conda",
            "category": "main",
            "dependencies": {"b": ""},
        },
        {"name": "b", "version": "2.0", "platform": "linux-64", "manager": "pip"},
    ],
}
LOCKS = {
    "uv.lock": (_UV, "toml"),
    "poetry.lock": (_POETRY, "toml"),
    "Pipfile.lock": (_PIPFILE, "json"),
    "pylock.toml": (_PYLOCK, "toml"),
    "pyproject.toml": (_PROJECT, "toml"),
    "environment.yml": (_CONDA, "json"),
    "conda-lock.yml": (_CONDA_LOCK, "json"),
}
_BLOCK_YAML = {name: yaml.safe_dump(value) for name, (value, _) in LOCKS.items() if name.endswith(".yml")}
WORDS = (
    *(
        "python",
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "train.py",
        "--lr",
        "0.1",
        "--lr=0.2",
        "-j8",
        "-j",
        "--amp",
    ),
    *(
        "--",
        "-",
        "lr=0.1",
        "+lr=1",
        "~x",
        "{overrides}",
        "--config={config}",
        "-1e-3",
        "--api-key",
        "hf_secret",
        "bash",
        "-c",
        "",
        "a b",
    ),
    *("https://u:p@h/x", "-X", "-W", "--=", "=", "-=", "--a=b=c", "sh", "x.sh", "/usr/bin/python3", "é", "\ud800"),
)


def read_file(case: tuple[str, str]) -> None:
    """Read a file by its name, and compare it with nothing: every package is a change that can be laid or hidden."""
    name, text = case

    def include(path: str) -> str:
        if path not in ("base.txt", "limits.txt"):
            raise FileNotFoundError(path)
        return text if path == "base.txt" else "numpy==1.5\nb==2\n"

    pins = read_packages_text(name, text, include=include, environment=LINUX)
    diff = diff_packages({}, pins)
    diff.pins(diff.changes)
    diff.hidden(())
    diff.unlayable()
    assert len(diff.changes) == len(pins)
    assert not diff_packages(pins, pins).changes


def _make_on_disk(rng: random.Random) -> tuple[str, str]:
    if rng.random() < 0.5:
        return _make_requirements(rng)
    return _make_lock(rng.choice(list(LOCKS)))(rng)


def _read_on_disk(case: tuple[str, str]) -> None:
    """The same with the file in a folder of this machine, where relative paths have a meaning."""
    name, text = case
    read_packages(write(folder("packages") / name, to_bytes(text)), environment=LINUX)


def _make_requirements(rng: random.Random) -> tuple[str, str]:
    return "requirements.txt", change_text(rng, rng.choice(REQUIREMENTS), REQUIREMENTS)


@cache
def _make_lock(name: str) -> Callable[[random.Random], tuple[str, str]]:
    value, kind = LOCKS[name]
    texts = [
        *([BOMB] if name in _BLOCK_YAML else []),
        toml_text(value) if kind == "toml" else json.dumps(value),
        *([_BLOCK_YAML[name]] if name in _BLOCK_YAML else []),
    ]

    def make(rng: random.Random) -> tuple[str, str]:
        if rng.random() < 0.25:
            return name, change_text(rng, rng.choice(texts), texts)
        changed = change_value(rng, value, [_UV, _CONDA, _PIPFILE])
        if kind == "toml":
            return name, toml_text(changed)
        return name, json_text(rng, changed)

    return make


def _make_commands(rng: random.Random) -> tuple[list[str], list[str], int]:
    def words() -> list[str]:
        kept = [rng.choice(WORDS) for _ in range(rng.randrange(9))]
        return [change_text(rng, word, WORDS)[:2000] if rng.random() < 0.2 else word for word in kept]

    good = words()
    bad = words() if rng.random() < 0.3 else [word for word in good if rng.random() < 0.8] + words()[:2]
    return good, bad, rng.randrange(2**16)


def _diff_commands(case: tuple[list[str], list[str], int]) -> None:
    good, bad, chosen = case
    diff = diff_commands(good, bad)
    assert diff.render(()) == tuple(good) and diff.render(diff.changes) == tuple(bad)
    diff.render([change for idx, change in enumerate(diff.changes) if chosen >> idx % 16 & 1])
    mask_command(good)
    interpreted_by(good)


def _make_reference(rng: random.Random) -> str:
    seeds = (
        "https://u:p@h:80/a-1.0-py3-none-any.whl#egg=x[y]&b=1",
        "git+ssh://git@h/r@v1#egg=a",
        "file:///a/b-2.tar.gz",
        "http://[::1]/a.zip",
    )
    return change_text(rng, rng.choice(seeds), seeds)


def _read_reference(text: str) -> None:
    """A direct reference after a name, as requirement files have it."""
    name_of_reference(text)
    read_file(("requirements.txt", f"x @ {text}\n{text}\n-e {text}\n"))


TARGETS = (
    Target("requirements", _make_requirements, read_file, (InputError,), 8.0),
    Target("references", _make_reference, _read_reference, (InputError,), 4.0),
    *(
        Target(name.replace(".", "-").lower(), _make_lock(name), read_file, (InputError,), 3.0 if name.endswith("yml") else 5.0)
        for name in LOCKS
    ),
    Target("package-files", _make_on_disk, _read_on_disk, (InputError,), 3.0),
    Target("commands", _make_commands, _diff_commands, (), 8.0),
)
