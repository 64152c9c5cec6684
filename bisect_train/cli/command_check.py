"""Finds a training or judging command that cannot run before anything is run: a program or a script that is not there."""

from __future__ import annotations

import posixpath
import shlex
import shutil
from collections.abc import Collection
from pathlib import Path, PurePath

from bisect_train.changes.repository import Repository
from bisect_train.core.errors import InputError
from bisect_train.core.question import Range
from bisect_train.recipe import Recipe

PYTHONS = ("python", "python3")
SHELLS = ("sh", "bash", "dash", "zsh")
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
    if path.startswith("..") or _is_linked(path, recipe, repository):
        return
    if any(repository.may_have_file(commit, path) for commit in (*commits.goods, commits.bad)):
        return
    if (repository.root / path).exists():
        hint = f"probes run in checkouts of their own: git add {path}, or link it with `data: link:` in the recipe"
        raise InputError(f"the script {script!r} is not tracked by git at either end", hint=hint)
    raise InputError(f"no such script: {script!r} is tracked at neither end", hint=f"its path is relative to {repository.root}")


def _is_linked(path: str, recipe: Recipe, repository: Repository) -> bool:
    return any(path == link.target or path.startswith(f"{link.target}/") for link in recipe.links_from(repository.root))


def check_judge(
    judge: tuple[str, ...], repository: Repository, commits: Range, recipe: Recipe, *, patched: Collection[str] = ()
) -> None:
    """Raise InputError where a judging command names a program or a script that a checkout does not have at both ends.

    It runs in the checkout of each probe. Python ends with status 2 for a script that is not there, which would call that run
    bad. `patched` are paths that a fixup may bring; a recipe that sets checkouts up, or links data there, may bring it too.
    """
    program, script = judge[0], _script_of_judge(judge)
    if "/" not in program and program not in PYTHONS and not shutil.which(program):
        hint = f"write ./{program} if it is a file at the top of the repository"
        raise InputError(f"the judging command is not found: {program!r}", hint=hint)
    if not script or recipe.setup.run or "{" in script:
        return
    if script.startswith("/"):
        if not Path(script).exists():
            raise InputError(f"no such judging script: {script!r}", hint="--judge, or `judge:` in the recipe, names it")
        return
    path = posixpath.normpath(script)
    if path.startswith("..") or path in patched or _is_linked(path, recipe, repository):
        return
    ends = [(f"the good end {good[:12]}", good) for good in commits.goods] + [(f"the bad end {commits.bad[:12]}", commits.bad)]
    missing = [name for name, commit in ends if not repository.may_have_file(commit, path)]
    if missing:
        where = missing[0] if len(missing) < len(ends) else "either end" if len(ends) > 1 else missing[0]
        raise InputError(
            f"the judging script {script!r} is not tracked by git at {where}", hint=_hint_of_judge(judge, path, repository)
        )


def _hint_of_judge(judge: tuple[str, ...], path: str, repository: Repository) -> str:
    rule = "it runs in the checkout of each probe, and a relative path is relative to that"
    found = next((place for place in (repository.root / path, Path(path).absolute()) if place.exists()), None)
    if found is None:
        return f"{rule}: commit it, or give its whole path"
    whole = shlex.join(str(found) if posixpath.normpath(part) == path else part for part in judge)
    return f"{rule}; give its whole path: --judge {shlex.quote(whole)}"


def _script_of_judge(judge: tuple[str, ...]) -> str:
    """Return the script that a judging command runs, by python, by a shell or by its path; "" where there is none."""
    if PurePath(judge[0]).name in SHELLS:
        return next((word for word in judge[1:2] if not word.startswith("-")), "")
    return script_of(judge) or (judge[0] if "/" in judge[0] else "")


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
