"""Finds what was not named: the recipe, the interpreter."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from bisect_train.cli.asked import Asked
from bisect_train.cli.notes import say_note
from bisect_train.core.errors import InputError
from bisect_train.recipe import Recipe, is_file_name, load_recipe, preset_names, preset_path

DEFAULT_RECIPE = "bisect-train.yaml"


def find_recipe(asked: Asked, root: Path) -> Recipe:
    """Return the recipe that was named (a file, or a preset), the one at the repository's root, or an empty one."""
    if asked.recipe is not None:
        return _load(recipe_file(asked.recipe))
    default = root / DEFAULT_RECIPE
    return _load(default) if default.is_file() else Recipe()


def _load(path: Path) -> Recipe:
    recipe = load_recipe(path)
    for note in recipe.notes:
        say_note(note)
    return recipe


def recipe_file(named: Path) -> Path:
    """Return the file that `--recipe` names: a path, or a preset's name where there is no such file.

    Raises:
        RecipeError: neither a file nor a preset.
    """
    name = str(named)
    if named.exists() or is_file_name(name) or (named.suffix and name not in preset_names()):
        return named
    return preset_path(name)


def find_python(named: str | None, *, option: str = "--python") -> str:
    """Return the interpreter of the caller: the one named, that of the active environment, else the tool's own."""
    if named:
        found = shutil.which(named)
        if not found:
            raise InputError(f"no such interpreter: {named!r}", hint=f"{option} takes the path of a python executable")
        return str(Path(found).absolute())
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = Path(os.environ.get(name, "/nonexistent")) / "bin" / "python"
        if active.exists():
            return str(active)
    return sys.executable
