"""Finds a training or judging command that cannot run before anything is run: a program or a script that is not there."""

from __future__ import annotations

import os
import posixpath
import shlex
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath

from bisect_train.changes.arguments import PYTHONS, SHELLS, interpreted_by
from bisect_train.changes.repository import Repository
from bisect_train.core.errors import InputError
from bisect_train.core.question import Range
from bisect_train.core.secrets import mask_command
from bisect_train.recipe import Recipe

THE_COMMAND = "the command behind --"


@dataclass(frozen=True, slots=True)
class Checkouts:
    """What the checkouts of two ends have: their commits' files, and what a recipe or a fixup brings.

    Args:
        repository: the user's.
        commits: the two ends.
        recipe: whose setup may make files, and whose links may bring them.
        patched: paths that a fixup may bring.
        linked: further places in the checkout where data are linked.
        python: the interpreter of the probes, whose folder comes first on their path.
    """

    repository: Repository
    commits: Range
    recipe: Recipe
    patched: Collection[str] = ()
    linked: Collection[str] = ()
    python: str = ""

    def has_program(self, name: str) -> bool:
        """Return whether a program without a path is found by a probe: beside its interpreter, or on the caller's path."""
        beside = [str(Path(self.python).parent)] if self.python else []
        return shutil.which(name, path=os.pathsep.join([*beside, os.environ.get("PATH", os.defpath)])) is not None

    def may_have(self, path: str) -> bool:
        """Return False only if no end's checkout has a file at a relative path."""
        path = posixpath.normpath(path)
        if self.recipe.setup.run or path.startswith("..") or path in self.patched or "{" in path:
            return True
        if _is_linked(path, self.recipe, self.repository) or any(path == at or path.startswith(f"{at}/") for at in self.linked):
            return True
        return any(self.repository.may_have_file(commit, path) for commit in (*self.commits.goods, self.commits.bad))

    @property
    def where(self) -> str:
        """Which commits have not got a file: of one commit its name."""
        commits = {*self.commits.goods, self.commits.bad}
        return "at either end" if len(commits) > 1 else f"at commit {self.commits.bad[:12]}"

    def untracked_hint(self, path: str) -> str:
        """Return what helps with a file of the working tree that no commit has; "" where there is none."""
        if not (self.repository.root / path).exists():
            return ""
        return f"probes run in checkouts of their own: git add {path}, or link it with `data: link:` in the recipe"


def check_spread(recipe: Recipe, commands: Iterable[tuple[str, ...]], ranks: Iterable[int]) -> None:
    """Raise InputError where ranks cannot be spread over nodes as the recipe asks, or a command does not know of nodes.

    Args:
        recipe: whose `resources: ranks_per_node` says how many ranks a node takes.
        commands: that are run; () is none.
        ranks: numbers of ranks of the probes.
    """
    per_node = recipe.resources.ranks_per_node
    spread = [num for num in ranks if per_node and num > per_node]
    if not spread:
        return
    uneven = next((num for num in spread if num % per_node), 0)
    if uneven:
        raise InputError(
            f"{uneven} ranks at {per_node} per node leave the last node with {uneven % per_node}: each node takes as many",
            hint=f"take a multiple of {per_node} ranks, or another `resources: ranks_per_node`",
        )
    if recipe.restart is not None:
        raise InputError(
            f"a run of {spread[0]} ranks at {per_node} per node is not killed and resumed: `restart` works on one node",
            hint=f"take at most {per_node} ranks",
        )
    for command in commands:
        is_own_launcher = any("{ranks}" in argument or "{local_ranks}" in argument for argument in command)
        if is_own_launcher and not any("{node_rank}" in argument for argument in command):
            raise InputError(
                f"the command starts its ranks itself and does not say on which node: {spread[0]} ranks at {per_node} per node "
                f"take {spread[0] // per_node} nodes",
                hint="with torchrun: --nnodes {nnodes} --node-rank {node_rank} --nproc-per-node {local_ranks} "
                "--master-addr {master_addr} --master-port {port}; a plain python command needs nothing",
            )


def _refuse_master_port(command: tuple[str, ...], *, named: str) -> None:
    if any("{master_port}" in argument for argument in command):
        raise InputError(f"{named} has the placeholder {{master_port}}, which stands for nothing", hint="the port is {port}")


def check_command(command: tuple[str, ...], checkouts: Checkouts, *, named: str = THE_COMMAND) -> None:
    """Raise InputError where a command's first word is no program, or an interpreter is to run a script that no end has.

    Args:
        command: to be run in a checkout.
        checkouts: what the ends have.
        named: what names the command, for messages.
    """
    _refuse_master_port(command, named=named)
    check_program(command[0], checkouts, named=named)
    script = script_of(command)
    if not script or "{" in script:
        return
    if script.startswith("/"):
        if not Path(script).exists():
            raise InputError(f"no such script: {script!r}", hint=f"{named} names it")
    elif not checkouts.may_have(script):
        if hint := checkouts.untracked_hint(posixpath.normpath(script)):
            raise InputError(f"the script {script!r} is not tracked by git {checkouts.where}", hint=hint)
        hint = f"{named} names it; its path is relative to {checkouts.repository.root}"
        raise InputError(f"no such script: {script!r} is not tracked {checkouts.where}", hint=hint)


def check_program(program: str, checkouts: Checkouts, *, named: str = THE_COMMAND) -> None:
    """Raise InputError where the first word of a command names no program: neither on the path nor in a checkout."""
    if program in PYTHONS or "{" in program:
        return
    hint = f"{named} is run as it is, without a shell"
    if "/" not in program:
        if not checkouts.has_program(program):
            root = checkouts.repository.root
            hint = f"write ./{program} if it is a file at the top of the repository" if (root / program).is_file() else hint
            raise InputError(f"command not found: {program!r}", hint=hint)
    elif program.startswith("/"):
        if not Path(program).exists():
            raise InputError(f"command not found: {program!r}", hint=hint)
    elif not checkouts.may_have(program):
        if untracked := checkouts.untracked_hint(posixpath.normpath(program)):
            raise InputError(f"the program {program!r} is not tracked by git {checkouts.where}", hint=untracked)
        raise InputError(f"command not found: {program!r}", hint=hint)


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
    shown = mask_command(judge)
    whole = shlex.join(str(found) if posixpath.normpath(part) == path else part for part in shown)
    return f"{rule}; give its whole path: --judge {shlex.quote(whole)}"


def _script_of_judge(judge: tuple[str, ...]) -> str:
    """Return the script that a judging command runs, by python, by a shell or by its path; "" where there is none."""
    return script_of(judge) or (judge[0] if "/" in judge[0] else "")


def script_of(command: tuple[str, ...]) -> str:
    """Return the script that python or a shell runs, "" where they run a module or code, or it is another program."""
    if PurePath(command[0]).name not in (*PYTHONS, *SHELLS):
        return ""
    what = interpreted_by(command)
    return what[0] if len(what) == 1 else ""
