"""Run git on a node: argument lists, no hooks, nobody's configuration, no prompts.

Every call inherits the slot's lock (`hold`), so that a git which outlives a killed worker keeps the slot to itself.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bisect_train_workers.node import NodeError, node_name

_DISK_WORDS = ("No space left on device", "Read-only file system", "Permission denied", "Disk quota exceeded")
_ALWAYS = (
    ("core.hooksPath", "/dev/null"),
    ("core.autocrlf", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("submodule.recurse", "false"),
    ("advice.detachedHead", "false"),
    ("safe.directory", "*"),
    ("gc.auto", "0"),
)


class GitError(Exception):
    """A git command failed; the message holds the command and the end of what it said."""


def git_environment() -> dict[str, str]:
    """Return the environment of our own git calls: the process's, without any GIT_* and with no user configuration."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env.update(
        GIT_CONFIG_GLOBAL="/dev/null",
        GIT_CONFIG_NOSYSTEM="1",
        GIT_ATTR_NOSYSTEM="1",
        GIT_OPTIONAL_LOCKS="0",
        GIT_TERMINAL_PROMPT="0",
        GIT_NO_LAZY_FETCH="1",
        GIT_NO_REPLACE_OBJECTS="1",
        LC_ALL="C",
    )
    return env


def run_git(
    args: Sequence[str],
    *,
    cwd: Path,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    hold: Sequence[int] = (),
) -> str:
    """Run one git command and return what it printed.

    Args:
        args: without `git`.
        cwd: where it runs.
        stdin: what it reads, else nothing.
        env: variables on top of `git_environment`.
        hold: file descriptors (locks) that the command inherits.
    Raises:
        GitError: its exit status was not 0.
        NodeError: it says that the disk is full or cannot be written.
    """
    status, output, errors = call_git(args, cwd=cwd, stdin=stdin, env=env, hold=hold)
    if status:
        said = errors.decode(errors="replace").strip()[-2000:]
        if any(word in said for word in _DISK_WORDS):
            raise NodeError(f"git cannot write {cwd} on {node_name()}: {said.splitlines()[-1]}")
        raise GitError(f"git {' '.join(args)} ended with {status} in {cwd}: {said}")
    return output.decode(errors="surrogateescape")


def call_git(
    args: Sequence[str],
    *,
    cwd: Path,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    hold: Sequence[int] = (),
) -> tuple[int, bytes, bytes]:
    """Run one git command and return exit status, output and errors; see `run_git` for the arguments."""
    settings = [item for key, value in _ALWAYS for item in ("-c", f"{key}={value}")]
    done = subprocess.run(
        ["git", *settings, *args],
        cwd=cwd,
        env={**git_environment(), **(env or {})},
        input=stdin if stdin is not None else b"",
        capture_output=True,
        pass_fds=tuple(hold),
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
