"""`bisect-train init`: write a commented recipe filled with what can be seen in the repository, and prove it."""

from __future__ import annotations

import os
from pathlib import Path

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.cli.delivering import write_text
from bisect_train.cli.desk import open_desk
from bisect_train.cli.finding import DEFAULT_RECIPE
from bisect_train.cli.first_probe import prove_recipe
from bisect_train.cli.terminal import say
from bisect_train.core.errors import InputError
from bisect_train.recipe import Tree, find_rest, inspect_tree, preset_template, recipe_template, recognise

MAX_FOUND = 64  # untracked paths of one glob


@click.command("init")
@click.option("--repo", type=click.Path(path_type=Path), default=Path(), help="The repository [default: here].")
@click.option("--output", type=click.Path(path_type=Path), help=f"File to write [default: {DEFAULT_RECIPE} in the repository].")
@click.option("--force", is_flag=True, help="Overwrite an existing recipe.")
@click.option("--python", metavar="PATH", help="Interpreter that `python` in the command stands for.")
@click.option("--prove/--no-prove", default=True, help="Run a few steps with the new recipe [default: --prove].")
def command(repo: Path, output: Path | None, force: bool, python: str | None, prove: bool) -> int:
    """Write a commented recipe, filled with what can be seen in the repository, and run a few steps with it.

    A repository of a framework that the tool knows gets a recipe that extends that preset (`bisect-train recipes`).

    \b
    Examples:
      bisect-train init
      bisect-train init --repo ../nanoGPT --output nanogpt.yaml
      bisect-train init --no-prove

    \b
    Exit status: 0 written (and proved, where this machine can run it), 1 written, but it does not run.
    """
    with open_desk() as desk:
        repository = Repository.open(repo, home=desk.home)
        target = output or repository.root / DEFAULT_RECIPE
        if target.exists() and not force:
            raise InputError(f"{target} exists already", hint="--force overwrites it, --output writes elsewhere")
        text, is_known = _write(repository)
        write_text(target, text)
        click.echo(f"wrote {target}")
        if not prove or not is_known:
            click.echo("next: read it, then `bisect-train probe` runs one probe with it")
            return 0
        proof = prove_recipe(desk, repository, target, python=python)
    say(f"{'proof ' if proof.is_fine else 'FAIL  '} {proof.found}")
    if proof.remedy and not proof.is_fine:
        say(f"       {proof.remedy}")
    return 0 if proof.is_fine else 1


def _write(repository: Repository) -> tuple[str, bool]:
    """Return the recipe for a repository, and whether there is something to run; say what it was recognised by."""
    root, files = repository.root, repository.tracked_files()
    tracked = frozenset(files)

    def read(path: str) -> str:
        return (root / path).read_text(encoding="utf-8")

    def find(pattern: str) -> list[str]:
        paths = (path.relative_to(root).as_posix() for path in root.glob(pattern))
        return sorted(path for path in paths if path not in tracked)[:MAX_FOUND]

    def is_there(path: str) -> bool:
        return Path(path).expanduser().exists()

    tree = Tree(files, read, find, is_there, tuple(os.environ.items()))
    known = recognise(tree)
    if not known:
        untracked = sorted(item.name + ("/" if item.is_dir() else "") for item in root.iterdir() if item.name != ".git")
        findings = inspect_tree(files, read, untracked=untracked)
        return recipe_template(findings), bool(findings.scripts)
    first, *others = known
    rest = find_rest(first, tree)
    say(f"this looks like {first.name}: {', '.join(first.signs)}")
    for note in rest.notes:
        say(f"note: {note}")
    return preset_template(first, rest, others=others), True
