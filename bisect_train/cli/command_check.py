"""Finds a training command that cannot run before anything is run: a program or a script that is not there."""

from __future__ import annotations

import posixpath
import shutil
from pathlib import Path, PurePath

from bisect_train.changes.repository import Repository
from bisect_train.core.errors import InputError
from bisect_train.core.question import Range
from bisect_train.recipe import Recipe

PYTHONS = ("python", "python3")
_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def check_program(program: str, repository: Repository) -> None:
    """Raise InputError where the first word of the command names no program."""
    if program in PYTHONS or "{" in program:
        return
    is_path = "/" in program
    found = (repository.root / program).exists() or Path(program).exists() if is_path else shutil.which(program)
    if not found:
        raise InputError(f"command not found: {program!r}", hint="the command behind -- is run as it is, without a shell")


def check_script(command: tuple[str, ...], repository: Repository, commits: Range, recipe: Recipe) -> None:
    """Raise InputError where python is to run a script that no end has.

    A recipe that sets checkouts up, or links data over the script's path, may bring the script: nothing is said then.
    """
    script = script_of(command)
    if not script or recipe.setup.run or "{" in script:
        return
    if script.startswith("/"):
        if not Path(script).exists():
            raise InputError(f"no such script: {script!r}", hint="the command behind -- names it")
        return
    path = posixpath.normpath(script)
    is_linked = any(path == link.target or path.startswith(f"{link.target}/") for link in recipe.links_from(repository.root))
    if path.startswith("..") or is_linked:
        return
    if any(repository.may_have_file(commit, path) for commit in (*commits.goods, commits.bad)):
        return
    if (repository.root / path).exists():
        hint = f"probes run in checkouts of their own: git add {path}, or link it with `data: link:` in the recipe"
        raise InputError(f"the script {script!r} is not tracked by git at either end", hint=hint)
    raise InputError(f"no such script: {script!r} is tracked at neither end", hint=f"its path is relative to {repository.root}")


def script_of(command: tuple[str, ...]) -> str:
    """Return the script that a python command runs, "" where it runs a module, code, or is no python command."""
    if PurePath(command[0]).name not in PYTHONS:
        return ""
    words = iter(command[1:])
    for word in words:
        if word in ("-c", "-m", "-") or word.startswith(("-c", "-m")):
            return ""
        if not word.startswith("-"):
            return word
        if word in _OPTIONS_WITH_VALUE:
            next(words, "")
    return ""
