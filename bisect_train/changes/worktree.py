"""The user's working tree as a commit in our mirror, made without touching the user's index, refs or objects.

A copy of the user's index (so that unchanged files are not hashed again) is brought up to date by `git add --all` with
GIT_DIR at our mirror. No filter or hook of the user runs: a changed file is taken byte for byte.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bisect_train.changes.plumbing import (
    Git,
    GitCommandError,
    decode,
    fields_of,
    isolated_environment,
    printable,
    run_git,
)
from bisect_train.core.errors import InputError, MachineError

if TYPE_CHECKING:
    from bisect_train.changes.repository import Repository

MAX_UNTRACKED_BYTES = 512 * 2**20
"""Untracked files beyond this are data, not code: they are refused rather than copied."""

SYNTHETIC_DATE = "946684800 +0000"
SYNTHETIC_AUTHOR = {
    "GIT_AUTHOR_NAME": "bisect-train",
    "GIT_AUTHOR_EMAIL": "bisect-train@localhost",
    "GIT_AUTHOR_DATE": SYNTHETIC_DATE,
    "GIT_COMMITTER_NAME": "bisect-train",
    "GIT_COMMITTER_EMAIL": "bisect-train@localhost",
    "GIT_COMMITTER_DATE": SYNTHETIC_DATE,
}
"""The same for every synthetic commit, so that the same content is the same commit."""

# What decides how a file's bytes and mode are read; nothing here runs a program.
_FILE_SETTINGS = (
    "filemode",
    "symlinks",
    "ignorecase",
    "precomposeunicode",
    "trustctime",
    "checkstat",
    "autocrlf",
    "eol",
)


def write_commit(git: Git, tree: str, *, message: str, parents: tuple[str, ...] = ()) -> str:
    """Return the id of a synthetic commit, written to the mirror; the same arguments give the same id."""
    options = [part for parent in parents for part in ("-p", parent)]
    return git.with_env(**SYNTHETIC_AUTHOR).text("commit-tree", tree, *options, stdin=f"{message}\n".encode())


def snapshot(repository: Repository, *, exclude: tuple[str, ...] = ()) -> str:
    """Return the commit that holds the working tree: changed and untracked files, not the ignored ones.

    Args:
        repository: with a working tree.
        exclude: paths (files or folders, relative to the top level) of untracked data that is left out.
    Returns:
        HEAD itself where nothing differs from it, else a synthetic commit on top of it, in our mirror only.
    Raises:
        InputError: a bare repository, or more than 512 MiB of untracked files.
        MachineError: the mirror cannot be written, or a file cannot be read.
    """
    if repository.is_bare:
        raise InputError(f"{repository.root} is bare: it has no working tree", hint="name a commit instead")
    with tempfile.TemporaryDirectory(prefix=".snapshot-", dir=_folder(repository)) as name:
        scratch = Path(name)
        settings = _settings(repository, scratch)
        index = scratch / "index"
        git = repository.git.with_env(GIT_INDEX_FILE=str(index), GIT_WORK_TREE=str(repository.root))
        if not _copy_index(repository, git, index):
            _rebuild_index(repository, git)
        left_out = [path for path in _excluded(repository, exclude) if not _is_ignored(repository, git, path, settings)]
        pathspecs = [".", *(f":(top,exclude,literal){path.rstrip('/')}" for path in left_out)]
        _check_size(repository, git, pathspecs, settings)
        _add_all(repository, git, pathspecs, settings)
        tree = git.text("write-tree", settings=settings)
    return _commit_on_head(repository, tree)


def _folder(repository: Repository) -> Path:
    if not os.access(repository.mirror, os.W_OK):
        hint = "set BISECT_TRAIN_HOME to a folder that can be written"
        raise MachineError(f"cannot write to {repository.mirror}", hint=hint)
    return repository.mirror


def _commit_on_head(repository: Repository, tree: str) -> str:
    head = repository.names.attempt("rev-parse", "--verify", "-q", "HEAD^{commit}")
    parents = (decode(head.stdout).strip(),) if head.returncode == 0 else ()
    if parents and repository.git.text("rev-parse", f"{parents[0]}^{{tree}}") == tree:
        return parents[0]
    message = "bisect-train: the working tree with its uncommitted changes"
    return write_commit(repository.git, tree, message=message, parents=parents)


def _copy_index(repository: Repository, git: Git, index: Path) -> bool:
    """Copy the user's index with its times (git compares them); return whether the copy can be used."""
    source = repository.git_dir / "index"
    if not source.is_file():
        return True
    shutil.copy2(source, index)
    return git.attempt("ls-files", "--stage", cwd=repository.root).returncode == 0


def _rebuild_index(repository: Repository, git: Git) -> None:
    """Fill the index from what the user's own lists: a split index cannot be copied as one file."""
    (Path(dict(git.env)["GIT_INDEX_FILE"])).unlink(missing_ok=True)
    listing = repository.names.with_env(GIT_WORK_TREE=str(repository.root))
    entries = listing.run("ls-files", "--stage", "-z", cwd=repository.root)
    git.run("update-index", "-z", "--index-info", stdin=entries, cwd=repository.root)


def _excluded(repository: Repository, exclude: tuple[str, ...]) -> tuple[str, ...]:
    home = repository.home.resolve()
    return (*exclude, str(home.relative_to(repository.root))) if home.is_relative_to(repository.root) else exclude


def _is_ignored(repository: Repository, git: Git, path: str, settings: list[str]) -> bool:
    """Return whether git leaves a path out by itself: adding fails where one of those is excluded by name."""
    return git.attempt("check-ignore", "-q", "--", path, settings=settings, cwd=repository.root).returncode == 0


def _add_all(repository: Repository, git: Git, pathspecs: list[str], settings: list[str]) -> None:
    try:
        git.run("add", "--all", "--", *pathspecs, settings=settings, cwd=repository.root)
    except GitCommandError as error:
        # git's last line is only that adding failed; the reason stands before it
        reason = next((line for line in error.stderr.splitlines() if line.startswith("error:")), error.message)
        if "No space left" in error.stderr or str(repository.mirror) in reason:
            raise
        raise InputError(
            f"the working tree of {repository.root} cannot be read: {printable(reason.removeprefix('error: '))}",
            hint="make the file readable, or add it to .gitignore",
        ) from error


def _check_size(repository: Repository, git: Git, pathspecs: list[str], settings: list[str]) -> None:
    command = ("ls-files", "--others", "--exclude-standard", "-z", "--", *pathspecs)
    names = fields_of(git.run(*command, settings=settings, cwd=repository.root))
    sizes = {name: _size(repository.root / name) for name in names}
    total = sum(sizes.values())
    if total > MAX_UNTRACKED_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise InputError(
            f"{total / 2**20:.0f} MiB of untracked files would be copied, the largest is {largest}",
            hint=f"add it to .gitignore, or link it as data; at most {MAX_UNTRACKED_BYTES // 2**20} MiB are copied",
        )


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _settings(repository: Repository, scratch: Path) -> list[str]:
    """Return the user's settings that decide which files count and how they are read."""
    user = _user_config(repository)
    found = [f"core.{name}={user[f'core.{name}']}" for name in _FILE_SETTINGS if f"core.{name}" in user]
    default = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "git" / "ignore"
    chosen = user.get("core.excludesfile")
    sources = [Path(chosen).expanduser() if chosen else default, repository.common_dir / "info" / "exclude"]
    rules = b"\n".join(source.read_bytes() for source in sources if source.is_file())
    excludes = scratch / "exclude"
    excludes.write_bytes(rules)
    return [*found, f"core.excludesFile={excludes}"]


def _user_config(repository: Repository) -> Mapping[str, str]:
    env = isolated_environment({"GIT_DIR": str(repository.git_dir)})
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"):
        env.pop(name)
    result = run_git(["config", "--includes", "--list", "-z"], env=env, cwd=repository.git_dir)
    pairs = (item.partition("\n") for item in fields_of(result.stdout))
    return {key: value if newline else "true" for key, newline, value in pairs}
