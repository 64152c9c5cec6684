"""A node of a cluster has nothing but Ray: what our workers import is python's, Ray's, or travels with them."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import ray

import bisect_train.core
import bisect_train_workers
from bisect_train_workers.ray_node import CARRIED_FOLDER
from bisect_train_workers.ray_session import CARRIED, copy_code

WORKERS = Path(bisect_train_workers.__file__ or "").parent
CORE = Path(bisect_train.core.__file__ or "").parent
OWN = {"bisect_train", "bisect_train_workers", "ray"}
TORCH_ONLY = "recorder"  # of the program's own process, where torch is


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def brought_by_ray() -> set[str]:
    """Return what is there wherever Ray is: what it needs, and what it has in a folder of its own."""
    needs = [text for text in importlib.metadata.requires("ray") or [] if "extra ==" not in text]
    names = {re.split(r"[^A-Za-z0-9_-]", text)[0].lower() for text in needs}
    modules = importlib.metadata.packages_distributions().items()
    folders = (Path(ray.__file__).parent / "thirdparty_files").glob("*")
    return {module for module, dists in modules if names & {dist.lower() for dist in dists}} | {path.name for path in folders}


def test_workers_import_only_what_every_node_has_or_gets() -> None:
    files = [path for folder in (WORKERS, CORE) for path in folder.rglob("*.py") if TORCH_ONLY not in path.parts]
    found = {name: path.name for path in files for name in imports_of(path)}
    known = OWN | set(sys.stdlib_module_names) | brought_by_ray() | set(CARRIED)
    assert {name: where for name, where in found.items() if name not in known} == {}
    assert len(files) > 60 and {"psutil", "packaging", "platformdirs", "fsspec"} <= set(found)


def test_code_that_travels_to_a_cluster_has_what_a_bare_node_lacks(tmp_path: Path) -> None:
    code = copy_code(tmp_path / "cluster", carried=CARRIED)
    assert sorted(path.name for path in (code / CARRIED_FOLDER).iterdir()) == sorted(CARRIED)
    assert all((code / CARRIED_FOLDER / name / "__init__.py").is_file() for name in CARRIED)
    assert (code / "bisect_train_workers/ray_task.py").is_file() and (code / "bisect_train/core/probe.py").is_file()
    at_home = copy_code(tmp_path / "home")
    assert not (at_home / CARRIED_FOLDER).exists()
