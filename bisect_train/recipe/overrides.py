"""One way to write a config key on the command line, for config changes and for the keys that scale a run."""

from __future__ import annotations

import re

from bisect_train.core.errors import RecipeError


def override_text(template: str, key: str, value: str) -> str:
    """Return one argument for the command line.

    Args:
        template: holds `{key}` and `{value}`, for example `--{key}={value}`.
        key: dotted path of a config key.
        value: its value as text.
    Raises:
        RecipeError: the template lacks a placeholder.
    """
    check_override(template)
    return re.sub(r"\{(key|value)\}", lambda found: key if found.group(1) == "key" else value, template)


def check_override(template: str) -> None:
    """Raise RecipeError if an override template lacks `{key}` or `{value}`."""
    for name in ("{key}", "{value}"):
        if name not in template:
            raise RecipeError(f"the override template {template!r} lacks {name}", hint='write, for example, "--{key}={value}"')
