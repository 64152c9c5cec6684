"""Install packages into a folder, by the program's own interpreter: its pip, else uv, else our pip in its name.

Which index is asked is the user's business: an address given with the question, else what the installer is configured
with on this machine. What the installer says at the end is what the user gets to read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bisect_train.core.secrets import mask_logins
from bisect_train_workers.data_links import CannotStartError
from bisect_train_workers.environment import clean_environment
from bisect_train_workers.installed import find_inherited
from bisect_train_workers.node import NodeError, make_folder, node_name, remove_folder

LIMIT_S = 1800.0
"""Time limit of an installation, seconds."""

_SAID_LINES = 12
_DISK_WORDS = ("No space left on device", "Disk quota exceeded", "Read-only file system")
_DROPPED = frozenset(
    ["PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIREMENT", "PIP_NO_COMPILE"]
)
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")
_UV = {"UV_COMPILE_BYTECODE": "1", "UV_LINK_MODE": "copy"}
_EPOCH = "315532800"
"""1980-01-01: with SOURCE_DATE_EPOCH set, python's compiler makes byte code that is checked by content, not by time."""


@dataclass(frozen=True, slots=True)
class PackageRequest:
    """Which packages are asked for, and for which interpreter.

    Attributes:
        python: absolute path of the program's interpreter.
        requirements: exact requirements such as `toyopt==2.0` or `x @ file:///x.whl`.
        find_links: folders and pages of wheels.
        index: address of an index; "" is the installer's own default, "none" is none at all.
    """

    python: str
    requirements: tuple[str, ...]
    find_links: tuple[str, ...] = ()
    index: str = ""

    @property
    def origin_options(self) -> list[str]:
        """The installer's options that say where packages come from."""
        index = {"": [], "none": ["--no-index"]}.get(self.index, ["--index-url", self.index])
        return [*index, *(part for place in self.find_links for part in ("--find-links", place))]


def install(request: PackageRequest, draft: Path, *, hold: int) -> None:
    """Install the requirements, without their dependencies, into `draft/site-packages`.

    Args:
        request: what is asked for.
        draft: folder that the installation may write in.
        hold: descriptor of a lock that the installer inherits: it may outlive a killed worker.
    Raises:
        CannotStartError: it cannot be installed; ends with what the installer said last.
        NodeError: the disk is full.
    """
    scratch = make_folder(draft / "scratch")
    wanted = scratch / "requirements.txt"
    wanted.write_text("".join(f"{item}\n" for item in request.requirements), encoding="utf-8")
    target = ["--no-deps", "--target", str(draft / "site-packages"), "-r", str(wanted)]
    run_installer([*_installer(request.python), *request.origin_options, *target], request, scratch=scratch, hold=hold)
    remove_folder(scratch)


def run_installer(command: list[str], request: PackageRequest, *, scratch: Path, hold: int) -> None:
    """Run an installer to its end in an empty folder. Raises as `install` does."""
    env = {**installer_environment(), "TMPDIR": str(scratch)}
    asked = mask_logins(", ".join(request.requirements))
    try:
        done = subprocess.run(
            command, cwd=scratch, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, pass_fds=(hold,)
        )
    except subprocess.TimeoutExpired:
        raise CannotStartError(f"{asked} could not be installed within {LIMIT_S:.0f} s") from None
    except OSError as error:
        raise CannotStartError(f"{command[0]} cannot be started: {error.strerror}") from None
    if done.returncode:
        said = _last_lines(done.stdout + b"\n" + done.stderr)
        if any(word in said for word in _DISK_WORDS):
            raise NodeError(f"cannot install {asked} on {node_name()}: {said.splitlines()[-1]}")
        raise CannotStartError(f"{asked} cannot be installed: {said}")


def installer_environment() -> dict[str, str]:
    """Return the worker's environment for an installer: with the user's settings of it, but for where things go."""
    kept = {name: value for name, value in clean_environment(os.environ).items() if name not in _DROPPED}
    return {**kept, **_UV, "SOURCE_DATE_EPOCH": _EPOCH}


def _installer(python: str) -> list[str]:
    """Return the start of the command that installs for an interpreter. Raises CannotStartError."""
    if _has_pip(python):
        return [python, *_PIP, "install", "--no-warn-conflicts"]
    uv = shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "--quiet", "--python", python]
    if _has_pip(sys.executable):
        return [sys.executable, *_PIP, "--python", python, "install", "--no-warn-conflicts"]
    raise CannotStartError(
        f"{python} has no pip and uv is not on PATH: packages cannot be laid over; run `{python} -m ensurepip`"
    )


def _has_pip(python: str) -> bool:
    return "pip" in find_inherited(python).packages


def _last_lines(output: bytes) -> str:
    lines = [line.rstrip() for line in output.decode("utf-8", errors="replace").splitlines() if line.strip()]
    return mask_logins("\n".join(lines[-_SAID_LINES:])) or "the installer said nothing"
