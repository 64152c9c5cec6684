"""The folders that a node keeps between probes, and what a full or read-only disk is called.

`BISECT_TRAIN_NODE_HOME`, else the platform's cache folder, holds one folder per repository (mirror and checkout slots),
one short-lived folder per probe and the locks of the ports in use. Nothing here is worth keeping, but what `--keep` put
under `kept`: it may be deleted whenever no probe runs. It must never lie in, or point into, the user's repository.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

HOME_VARIABLE = "BISECT_TRAIN_NODE_HOME"
NAME_VARIABLE = "BISECT_TRAIN_NODE_NAME"
"""Set by a probe's task: what the coordinator of a cluster calls this node."""

_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EPERM, errno.EDQUOT})


class NodeError(Exception):
    """This node's disk cannot hold what a probe needs; the coordinator turns it into MachineError."""


@dataclass(frozen=True, slots=True)
class NodeHome:
    """The node's cache folder.

    Attributes:
        path: absolute path; made on first use.
    """

    path: Path

    def repo(self, key: str) -> Path:
        """Return the folder of a repository, made if need be; `key` may be any text."""
        is_name = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", key)
        name = key if is_name else hashlib.sha256(key.encode()).hexdigest()[:24]
        return make_folder(self.path / "repos" / name)

    @property
    def ports(self) -> Path:
        """Folder of the port locks."""
        return make_folder(self.path / "ports")

    @property
    def probes(self) -> Path:
        """Parent of the probes' private folders; see `probe_folders`."""
        return make_folder(self.path / "probes")


def find_node_home(wanted: str = "") -> NodeHome:
    """Return the node's home: from the environment, else as `wanted` by the coordinator, else the platform's cache folder."""
    given = os.environ.get(HOME_VARIABLE) or wanted
    if given:
        return NodeHome(Path(given).absolute())
    import platformdirs

    return NodeHome(Path(platformdirs.user_cache_dir("bisect-train")) / "node")


def node_name() -> str:
    """Return what this node is called in messages and results: the coordinator's name for it, else its host's."""
    return os.environ.get(NAME_VARIABLE) or os.uname().nodename


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full, read-only or forbidden disk into NodeError that names `path`; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_ERRORS:
            where = error.filename or path
            raise NodeError(f"cannot write {where} on {node_name()}: {error.strerror}") from error
        raise


def make_folder(path: Path) -> Path:
    """Make a folder and its parents; return it. Raises NodeError."""
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def remove_folder(path: Path) -> None:
    """Remove a folder whatever the modes in it are; symlinks are removed, never followed. One that is not there is no error.

    Modes of what lies around it are left alone: its parent may be `/tmp`.
    """
    if path.is_symlink() or path.is_file():
        path.unlink()
        return
    retry = functools.partial(_make_writable_and_retry, path)
    if sys.version_info >= (3, 12):
        shutil.rmtree(path, onexc=retry)
    else:
        shutil.rmtree(path, onerror=retry)


def _make_writable_and_retry(root: Path, function: Callable[..., object], path: str, _info: object) -> None:
    with contextlib.suppress(OSError):
        if Path(path) != root:
            Path(path).parent.chmod(stat.S_IRWXU)
        if not Path(path).is_symlink():
            Path(path).chmod(stat.S_IRWXU)
        if function in (os.scandir, os.open, os.listdir):
            shutil.rmtree(path, ignore_errors=True)
        else:
            function(path)
