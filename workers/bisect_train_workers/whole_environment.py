"""A whole environment for one resolved set of packages, made by uv: the program runs with its python.

Unlike an overlay it holds everything that the set and its dependencies name, and nothing of the inherited environment.
It lies beside the overlays, addressed and shared in the same way.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.changes import digest_of
from bisect_train_workers.data_links import CannotStartError
from bisect_train_workers.installed import find_inherited
from bisect_train_workers.node import NodeHome
from bisect_train_workers.overlay_inputs import local_inputs
from bisect_train_workers.overlay_install import PackageRequest, run_installer
from bisect_train_workers.shelf import Shelf, make_read_only

MAX_BYTES = 60 * 2**30
"""What the environments of a node may hold together."""


@dataclass(frozen=True, slots=True)
class WholeEnvironment:
    """An environment that is ready.

    Attributes:
        python: its interpreter.
        digest: of what it holds, 16 hex digits.
        lock_fd: whoever has it open keeps it from being removed.
    """

    python: str
    digest: str
    lock_fd: int


def environment_shelf(home: NodeHome, max_bytes: int = MAX_BYTES) -> Shelf:
    """Return where a node keeps its environments; the ones not used for longest go when they hold more than `max_bytes`."""
    return Shelf(home.path / "environments", max_bytes)


@contextlib.contextmanager
def hold_environment(home: NodeHome, request: PackageRequest) -> Iterator[WholeEnvironment]:
    """Yield the environment of a request, built if need be; it is not removed while it is held.

    Raises:
        CannotStartError: uv is missing, or the set cannot be installed together.
        NodeError: the disk is full or cannot be written.
    """
    uv = shutil.which("uv")
    if uv is None:
        raise CannotStartError("uv is not on PATH: install it, or set `environment: {mode: overlay}` in the recipe")
    base = find_inherited(request.python)

    def fill(draft: Path, lock_fd: int) -> None:
        _fill(draft, request, uv, lock_fd=lock_fd)

    files = local_inputs(request.requirements, request.find_links)
    key = digest_of([sorted(request.requirements), files, request.origin_options, request.python, base.interpreter])
    with environment_shelf(home).hold(key, fill) as item:
        python = str(item.path / "env/bin/python")
        yield WholeEnvironment(python, find_inherited(python).identity, item.lock_fd)


def _fill(draft: Path, request: PackageRequest, uv: str, *, lock_fd: int) -> None:
    """Make an environment that can be moved, and install the set with all that it needs."""
    scratch, env = draft / "scratch", draft / "env"
    scratch.mkdir()
    wanted = scratch / "requirements.txt"
    wanted.write_text("".join(f"{item}\n" for item in request.requirements), encoding="utf-8")
    quiet = [uv, "--quiet", "--no-config"] if request.index else [uv, "--quiet"]
    steps = (
        [*quiet, "venv", "--relocatable", "--python", request.python, str(env)],
        [*quiet, "pip", "install", "--python", str(env / "bin/python"), *request.origin_options, "-r", str(wanted)],
    )
    for command in steps:
        run_installer(command, request, scratch=scratch, hold=lock_fd)
    shutil.rmtree(scratch)
    make_read_only(env)
