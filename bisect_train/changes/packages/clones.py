"""Clones of packages' repositories that are given by address: bare, in the tool's home, brought up to date when asked for."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock

from bisect_train.core.errors import InputError
from bisect_train.core.secrets import mask_logins

SCHEMES = ("https", "http", "ssh", "git", "file")
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": ":".join(SCHEMES)}  # never waits for a password
_HINT = "give an address that git can clone without a password, or clone it and name the clone"


def clone_of(address: str, home: Path) -> Path:
    """Return the bare clone of an address; one that is there is brought up to date where the address answers.

    Args:
        address: `https://host/package.git` and the like.
        home: of the tool; the clone lies in `package-repos`.
    Raises:
        InputError: another kind of address, or nothing that git can clone.
    """
    import git  # starts git when imported

    shown = mask_logins(address)
    if urlsplit(address).scheme not in SCHEMES:
        raise InputError(f"{shown} is no address of a repository", hint=f"known: {', '.join(SCHEMES)}, or a folder")
    parent = home / "package-repos"
    parent.mkdir(parents=True, exist_ok=True)
    clone = parent / f"{hashlib.sha256(address.encode()).hexdigest()[:16]}.git"
    with FileLock(f"{clone}.lock"):
        if clone.is_dir():
            with contextlib.suppress(git.GitCommandError):  # offline: what it holds may be enough, and else says what lacks
                git.Repo(clone).git.execute(["git", "fetch", "--quiet", "--prune", "origin"], env=_QUIET)
        else:
            _clone(address, clone, shown)
    return clone


def _clone(address: str, clone: Path, shown: str) -> None:
    import git

    with tempfile.TemporaryDirectory(prefix="clone-", dir=clone.parent) as scratch:
        fresh = Path(scratch) / "clone"
        try:
            git.Repo.clone_from(address, fresh, mirror=True, env=_QUIET)
        except git.GitCommandError as error:
            lines = [line for line in str(error.stderr).strip(" '\n").splitlines() if line.strip()]
            said = mask_logins(lines[-1].strip(" '")) if lines else "git failed"
            raise InputError(f"{shown} cannot be cloned: {said}", hint=_HINT) from None
        shutil.move(fresh, clone)
