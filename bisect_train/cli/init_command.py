"""`bisect-train init`: write a commented recipe filled with what can be seen in the repository."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from bisect_train.changes.repository import Repository
from bisect_train.cli.delivering import write_text
from bisect_train.cli.desk import open_desk
from bisect_train.cli.finding import DEFAULT_RECIPE
from bisect_train.core.errors import InputError
from bisect_train.recipe import inspect_tree, recipe_template


@click.command("init")
@click.option("--repo", type=click.Path(path_type=Path), default=Path(), help="The repository [default: here].")
@click.option("--output", type=click.Path(path_type=Path), help=f"File to write [default: {DEFAULT_RECIPE} in the repository].")
@click.option("--force", is_flag=True, help="Overwrite an existing recipe.")
def command(repo: Path, output: Path | None, force: bool) -> int:
    """Write a commented recipe, filled with what can be seen in the repository.

    \b
    Examples:
      bisect-train init
      bisect-train init --repo ../nanoGPT --output nanogpt.yaml
    """
    with open_desk() as desk:
        repository = Repository.open(repo, home=desk.home)
    root = repository.root
    target = output or root / DEFAULT_RECIPE
    if target.exists() and not force:
        raise InputError(f"{target} exists already", hint="--force overwrites it, --output writes elsewhere")
    files = repository.tracked_files()
    untracked = sorted(item.name + ("/" if item.is_dir() else "") for item in root.iterdir() if item.name != ".git")
    findings = inspect_tree(files, lambda path: (root / path).read_text(encoding="utf-8"), untracked=untracked)
    write_text(target, recipe_template(findings))
    click.echo(f"wrote {target}")
    click.echo("next: read it, then `bisect-train probe` runs one probe with it")
    return 0
