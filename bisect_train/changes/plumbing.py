"""Runs git with nothing of the caller's leaking in: no GIT_* variables, no user's config, no hooks, no network.

Argument lists only, no shell. GitPython's own runner cannot *unset* a variable (a leaked GIT_INDEX_FILE or GIT_COMMON_DIR
would reach git), so this layer calls git itself and uses GitPython for small things only. Nothing here knows which
repository is read-only: that is `repository`'s business.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from bisect_train.core.errors import MachineError

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The tree without entries; git knows it without storing it."""

_FIXED_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.quotePath=false",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
)

_MACHINE_TROUBLE = (
    "No space left on device",
    "Read-only file system",
    "Permission denied",
    "insufficient permission",
    "Disk quota exceeded",
    "unable to create temporary",
    "Too many open files",
    "Cannot allocate memory",
)


class GitCommandError(MachineError):
    """A git command failed.

    Attributes:
        stderr: what git said, decoded.
        status: git's exit status.
    """

    def __init__(self, message: str, *, stderr: str, status: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.stderr = stderr
        self.status = status

    @property
    def is_machine_trouble(self) -> bool:
        """Whether the machine, not the question, is to blame (full disk, read-only folder)."""
        return any(sign in self.stderr for sign in _MACHINE_TROUBLE)


def isolated_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for git: the caller's without any GIT_* but GIT_EXEC_PATH, the user's config shut out."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key == "GIT_EXEC_PATH"}
    kept.pop("LANGUAGE", None)
    kept |= {
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",  # commits as they were recorded, whatever refs/replace says
        "GIT_NO_LAZY_FETCH": "1",  # from git 2.44; before, the next line keeps a partial clone from fetching
        "GIT_ALLOW_PROTOCOL": "none",
    }
    return kept | dict(extra or {})


@dataclass(frozen=True, slots=True)
class Git:
    """Runs git commands on one git directory.

    Attributes:
        git_dir: GIT_DIR of each command.
        env: variables added to the isolated environment.
    """

    git_dir: Path
    env: tuple[tuple[str, str], ...] = field(default=())

    def with_env(self, **variables: str) -> Git:
        """Return the same with more environment variables."""
        return replace(self, env=(*self.env, *variables.items()))

    def with_objects(self, folders: Iterable[Path]) -> Git:
        """Return the same, also reading objects from these folders."""
        joined = os.pathsep.join(quote_path(folder) for folder in folders)
        return self.with_env(GIT_ALTERNATE_OBJECT_DIRECTORIES=joined)

    def attempt(
        self, *args: str, stdin: bytes = b"", settings: Sequence[str] = (), cwd: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command and return its result, whatever its status."""
        env = isolated_environment({"GIT_DIR": str(self.git_dir), **dict(self.env)})
        return run_git(args, env=env, stdin=stdin, settings=settings, cwd=cwd or self.git_dir)

    def run(self, *args: str, stdin: bytes = b"", settings: Sequence[str] = (), cwd: Path | None = None) -> bytes:
        """Run a command and return its standard output.

        Raises:
            GitCommandError: git's exit status is not 0.
        """
        result = self.attempt(*args, stdin=stdin, settings=settings, cwd=cwd)
        if result.returncode != 0:
            raise failure_of(args, result, git_dir=self.git_dir)
        return result.stdout

    def text(self, *args: str, stdin: bytes = b"", settings: Sequence[str] = ()) -> str:
        """Run a command and return its output as text without the last newline."""
        return decode(self.run(*args, stdin=stdin, settings=settings)).removesuffix("\n")

    def succeeds(self, *args: str) -> bool:
        """Return whether a command that answers yes or no by its status says yes.

        Raises:
            GitCommandError: the status is neither 0 nor 1.
        """
        result = self.attempt(*args)
        if result.returncode not in (0, 1):
            raise failure_of(args, result, git_dir=self.git_dir)
        return result.returncode == 0


def run_git(
    args: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: bytes = b"",
    settings: Sequence[str] = (),
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run git in exactly this environment and return its result.

    Raises:
        MachineError: git is not installed, or the folder is gone.
    """
    options = [part for setting in (*_FIXED_SETTINGS, *settings) for part in ("-c", setting)]
    try:
        return subprocess.run(["git", *options, *args], env=dict(env), input=stdin, capture_output=True, cwd=cwd)
    except FileNotFoundError as error:
        if cwd is not None and not cwd.exists():
            raise MachineError(f"the folder {cwd} is gone", hint="run the command again") from error
        raise MachineError("git was not found", hint="install git 2.38 or newer and put it on PATH") from error
    except OSError as error:
        raise MachineError(f"git could not be started: {error.strerror}", hint=f"look at {cwd}") from error


def failure_of(args: Sequence[str], result: subprocess.CompletedProcess[bytes], *, git_dir: Path) -> GitCommandError:
    """Return the error that describes a failed command."""
    stderr = decode(result.stderr).strip()
    last = stderr.splitlines()[-1] if stderr else f"exit status {result.returncode}"
    error = GitCommandError(f"git {args[0]} failed: {last}", stderr=stderr, status=result.returncode)
    if error.is_machine_trouble:
        error.hint = f"make room in {git_dir}, or set BISECT_TRAIN_HOME to a folder that can be written"
    return error


def decode(data: bytes) -> str:
    """Return text of git's output; bytes that are not UTF-8 come back as they were on the way to a path."""
    return data.decode("utf-8", errors="surrogateescape")


def printable(text: str) -> str:
    """Return text that is safe on one line of a terminal: control characters and stray bytes escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def fields_of(data: bytes) -> list[str]:
    """Return the NUL-terminated fields of a command's output."""
    return decode(data).split("\0")[:-1]


def quote_path(path: Path) -> str:
    """Return a path as git reads it from an alternates list: C-quoted where a character needs it."""
    text = str(path)
    if not any(char in text for char in '"\n' + os.pathsep) and not text.startswith("#"):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@cache
def git_version() -> tuple[int, ...]:
    """Return the version of the installed git, such as (2, 39, 5)."""
    import git  # GitPython starts git when imported; only here, so that a missing git is reported by us

    return tuple(git.Git().version_info)
