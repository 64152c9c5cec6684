"""Clones of packages' repositories that are given by address: bare, in the tool's home, brought up to date when asked for."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock

from bisect_train.changes.fetching import USERS_OWN
from bisect_train.changes.plumbing import decode, printable, run_git
from bisect_train.core.errors import InputError
from bisect_train.core.secrets import mask_logins

SCHEMES = ("https", "http", "ssh", "git", "file")
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": ":".join(SCHEMES), "LC_ALL": "C"}  # never waits for a password
_HINT = "give an address that git can clone without a password, or clone it and name the clone"


def clone_of(address: str, home: Path) -> Path:
    """Return the bare clone of an address; one that is there is brought up to date where the address answers.

    Args:
        address: `https://host/package.git` and the like.
        home: of the tool; the clone lies in `package-repos`.
    Raises:
        InputError: another kind of address, or nothing that git can clone.
    """
    shown = mask_logins(address)
    if urlsplit(address).scheme not in SCHEMES:
        raise InputError(f"{shown} is no address of a repository", hint=f"known: {', '.join(SCHEMES)}, or a folder")
    parent = home / "package-repos"
    parent.mkdir(parents=True, exist_ok=True)
    clone = parent / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}.git"
    with FileLock(f"{clone}.lock"):
        if clone.is_dir():
            # offline: what it holds may be enough, and else says what lacks
            _network(["fetch", "--quiet", "--prune", "--no-recurse-submodules", "origin"], folder=clone, git_dir=clone)
        else:
            _clone(address, clone, shown)
    return clone


def _clone(address: str, clone: Path, shown: str) -> None:
    with tempfile.TemporaryDirectory(prefix="clone-", dir=clone.parent) as scratch:
        fresh = Path(scratch) / "clone"
        result = _network(["clone", "--quiet", "--mirror", "--template=", "--", address, str(fresh)], folder=Path(scratch))
        if result.returncode:
            lines = [line for line in decode(result.stderr).splitlines() if line.strip()]
            said = printable(mask_logins(lines[-1].strip())) if lines else "git failed"
            raise InputError(f"{shown} cannot be cloned: {said}", hint=_HINT)
        shutil.move(fresh, clone)


def _network(args: Sequence[str], *, folder: Path, git_dir: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run git with the user's own settings (credentials, proxies, ssh) and none of the variables that name a repository.

    Within a hook these name the user's, and a fetch would prune the branches there.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key in USERS_OWN}
    where = {"GIT_DIR": str(git_dir)} if git_dir is not None else {}
    return run_git(args, env={**kept, **_QUIET, **where}, cwd=folder)
