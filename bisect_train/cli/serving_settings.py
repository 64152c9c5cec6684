"""From the options of `bisect-train serve` to its settings; all that is wrong with them is found here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bisect_train.changes.repository import Repository
from bisect_train.cli.finding import find_python, recipe_file
from bisect_train.core.errors import InputError
from bisect_train.recipe import load_recipe
from bisect_train.service.auth import digest_token
from bisect_train.service.settings import Settings
from bisect_train.service.wire import NAME
from bisect_train.store.queue_contract import MIN_TOKEN_CHARS


def settings_of(values: Mapping[str, Any], *, home: Path) -> Settings:
    """Return the settings.

    Raises:
        InputError: a folder that is no repository, a recipe that cannot be read, a name that is used twice, a short token.
    """
    python = find_python(values["python"])
    return Settings(
        home=home,
        host=values["host"],
        port=values["port"],
        repositories=_named(values["repos"] or (".",), lambda path: Repository.open(path, home=home).root, what="--repo"),
        recipes=_named(values["recipes"], _checked_recipe, what="--recipe"),
        tokens=read_tokens(values["token_file"]),
        allow_commands=values["allow_commands"],
        max_running=values["max_running"],
        address=values["address"],
        cpus=values["cpus"],
        python=python,
        lease_s=values["lease_s"],
    )


def _checked_recipe(named: Path) -> Path:
    path = recipe_file(named).absolute()
    load_recipe(path)
    return path


def _named(given: Sequence[str], read: Callable[[Path], Path], *, what: str) -> tuple[tuple[str, Path], ...]:
    """Return (name, path) of `NAME=PATH` or `PATH`, whose name is then its last part without a suffix."""
    found: dict[str, Path] = {}
    for text in given:
        name, mark, place = text.partition("=")
        path = read(Path(place if mark else text))
        name = name if mark else re.sub(r"[^A-Za-z0-9._-]", "-", path.stem or "repository").strip(".-_")
        if not re.fullmatch(NAME, name):
            raise InputError(f"{what} {text}: {name!r} is no name", hint="NAME=PATH, of letters, digits, `.`, `_`, `-`")
        if found.get(name, path) != path:
            raise InputError(f"{what}: two have the name {name}", hint="give them names: NAME=PATH")
        found[name] = path
    return tuple(found.items())


def read_tokens(path: Path | None) -> tuple[str, ...]:
    """Return the digests of the tokens in a file, one a line; # begins a comment.

    Raises:
        InputError: it cannot be read, has none, or a short one.
    """
    if path is None:
        return ()
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--token-file {path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    tokens = [line for line in lines if line and not line.startswith("#")]
    hint = "for example: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
    if not tokens:
        raise InputError(f"--token-file {path}: there is no token in it", hint=hint)
    if any(len(token) < MIN_TOKEN_CHARS for token in tokens):
        raise InputError(f"--token-file {path}: a token has fewer than {MIN_TOKEN_CHARS} characters", hint=hint)
    return tuple(digest_token(token) for token in tokens)
