"""`bisect-train recipes`: the presets that come with the tool."""

from __future__ import annotations

import rich_click as click

from bisect_train.recipe import Recipe, load_recipe, preset_names, preset_path


@click.group("recipes", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> int:
    """List the recipes that come with the tool, one for each framework.

    \b
    Examples:
      bisect-train recipes
      bisect-train recipes show nanogpt
      bisect-train run --recipe nanogpt --good v1 --bad main
    """
    if context.invoked_subcommand is not None:
        return 0
    recipes = {name: load_recipe(preset_path(name)) for name in preset_names()}
    width = max(map(len, recipes))
    for name, recipe in recipes.items():
        click.echo(f"{name:<{width}}  {recipe.about}{say_needs(recipe)}")
    click.echo("\n`bisect-train recipes show NAME` prints one; `extends: NAME` in a recipe, or --recipe NAME, uses it")
    return 0


@command.command("show")
@click.argument("name")
def show(name: str) -> int:
    """Print a preset: what it runs, how that depends on the commit, what it cannot do."""
    click.echo(preset_path(name).read_text(encoding="utf-8"), nl=False)
    return 0


def say_needs(recipe: Recipe) -> str:
    """Return what a recipe asks of a machine, in brackets; "" where that is torch alone."""
    modules = [name for name in recipe.needs_modules if name not in ("torch", "numpy")]
    gpus = [f"{recipe.needs_gpus} GPU{'s' if recipe.needs_gpus != 1 else ''}"] if recipe.needs_gpus else []
    needs = [*modules, *gpus]
    return f" (needs {', '.join(needs)})" if needs else ""
