"""A recipe that extends another one: where that lies, and what both say together."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from bisect_train.core.errors import RecipeError

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
"""The presets that come with the tool, one a file."""


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets."""
    return tuple(sorted(path.stem for path in CONFIGS.glob("*.yaml")))


def preset_path(name: str) -> Path:
    """Return the file of a preset.

    Raises:
        RecipeError: there is none of this name (names the nearest).
    """
    if name in preset_names():
        return CONFIGS / f"{name}.yaml"
    near = difflib.get_close_matches(name.lower(), preset_names(), n=1, cutoff=0.6)
    meant = f"did you mean {near[0]!r}? " if near else ""
    raise RecipeError(f"there is no preset {name!r}", hint=f"{meant}presets: {', '.join(preset_names())}")


def is_file_name(text: str) -> bool:
    """Return whether a text that names a recipe is a path rather than a preset's name."""
    return "/" in text or text.endswith((".yaml", ".yml"))


def find_base(base: str, path: Path, *, where: str) -> Path:
    """Return the file of what a recipe extends: a preset by name, or a file beside the recipe.

    Args:
        base: as written.
        path: of the recipe.
        where: file and line, for messages.
    Raises:
        RecipeError: there is no such preset, or no such file.
    """
    if not is_file_name(base):
        try:
            return preset_path(base)
        except RecipeError as error:
            raise RecipeError(f"{where}: extends: {error.message}", hint=error.hint) from None
    found = path.parent / Path(base).expanduser()
    if not found.is_file():
        raise RecipeError(f"{where}: extends: there is no file {found}", hint="a path is relative to this recipe's folder")
    return found


def merge_recipes(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return what two recipes say together.

    Mappings are merged key by key, the own keys first; anything else of `own` takes the place of what `base` says, except that
    its `when` blocks, of which the first counts, come before those of `base`. `null` takes a mapping or a list of `base` out.
    What tells a preset apart is not passed on.
    """
    rest = {key: value for key, value in base.items() if key not in ("extends", "recognise", "about")}
    merged = _merge(rest, own)
    if isinstance(base.get("when"), list) and isinstance(own.get("when"), list):
        merged["when"] = [*own["when"], *base["when"]]
    return merged


def _merge(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    merged = {}
    for key, value in own.items():
        if value is None and isinstance(base.get(key), (dict, list)):
            continue
        is_both = isinstance(value, dict) and isinstance(base.get(key), dict)
        merged[key] = _merge(base[key], value) if is_both else value
    return {**merged, **{key: value for key, value in base.items() if key not in own}}
