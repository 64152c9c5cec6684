"""Interpreters, packages' sources and their repositories, from options and a recipe."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from bisect_train.changes.packages.clones import clone_of
from bisect_train.changes.packages.repo import is_repository
from bisect_train.cli.asked import Asked
from bisect_train.cli.data_ends import digest_given
from bisect_train.cli.finding import find_python
from bisect_train.cli.notes import say_note
from bisect_train.core.changes import digest_of
from bisect_train.core.errors import InputError
from bisect_train.core.interpreters import ALONE
from bisect_train.core.probe import EnvironmentSettings
from bisect_train.core.secrets import mask_logins
from bisect_train.recipe import Recipe


def interpreters(asked: Asked) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return path and description of each end's interpreter where they differ, else ("", "") twice."""
    if asked.bad_python is None:
        return ("", ""), ("", "")
    paths = (find_python(asked.python), find_python(asked.bad_python, option="--bad-python"))
    return (paths[0], _describe(paths[0], "--python")), (paths[1], _describe(paths[1], "--bad-python"))


def _describe(python: str, option: str) -> str:
    version = _ask_python(python, "import platform; print(platform.python_version())", option).strip()
    return f"{version} {digest_of(list(installed_packages(python, option=option)))}"


def environment_settings(asked: Asked, recipe: Recipe, python: str) -> EnvironmentSettings:
    """Return how packages are made available.

    Raises:
        InputError: packages differ, but the recipe says that the environment is only inherited.
    """
    given = recipe.environment
    lists = [path for path in (*asked.good_env, *asked.bad_env) if not is_dotenv(path)]
    differs = bool(given.files or lists)
    if given.mode == "inherit" and differs:
        raise InputError(
            f"{recipe.path}: environment.mode is inherit, so no package is ever laid over it",
            hint="take `mode: inherit` out of the recipe, or the lists of packages out of the question",
        )
    base = Path(asked.repo)
    own = (_place(text, base) for text in given.find_links)  # a recipe's paths are relative to the repository
    links = (*own, *(_place(text, Path()) for text in asked.find_links))
    folders = [Path(link) for link in links if "://" not in link]
    digests = [digest_given("--find-links", folder) for folder in folders] if differs else []
    return EnvironmentSettings(
        mode="uv" if given.mode == "uv" else "overlay",
        find_links=links,
        index=_index(asked.index_url, "--index-url", Path()) or _index(given.index, f"{recipe.path}: environment.index", base),
        digest=digest_of(digests) if digests else "",
        files=given.files,
        installed=installed_packages(python) if given.files and given.mode != "uv" else (),
    )


def _index(text: str, named: str, base: Path) -> str:
    """Return the address of a package index; a folder as a `file:` address.

    Raises:
        InputError: neither an http(s) or file address, nor an existing folder, nor `none`.
    """
    if text in ("", "none"):
        return text
    parts = urlsplit(text)
    if parts.scheme in ("http", "https") and parts.hostname:
        return text
    folder = Path(unquote(parts.path)) if parts.scheme == "file" else base / Path(text).expanduser()
    if parts.scheme in ("", "file") and folder.is_dir():
        return folder.absolute().as_uri()
    what = "there is no such folder" if parts.scheme in ("", "file") else "this is no address of a package index"
    raise InputError(
        f"{named} {mask_logins(text)}: {what}",
        hint="give an http, https or file address, an existing folder, or `none` for --find-links alone",
    )


def package_repos(
    asked: Asked,
    recipe: Recipe,
    differing: Collection[str] | None = None,
    *,
    home: Path,
    is_submodule: Callable[[str], bool] = lambda name: False,
) -> tuple[tuple[str, str], ...]:
    """Return (canonical name, absolute folder) of the packages' repositories; those given by address are cloned.

    Args:
        asked, recipe: what names them.
        differing: packages that differ between the ends, None where commits bring others.
        home: of the tool, for clones.
        is_submodule: whether a name is the path of a submodule, whose clone is named in the same way.
    Raises:
        InputError: not NAME=DIR_OR_URL, no such folder, no git repository, or nothing that can be cloned.
    """
    found = {name: _place(folder, Path(asked.repo)) for name, folder in recipe.environment.package_repos}
    for text in asked.package_repo:
        name, equals, folder = text.partition("=")
        if not equals or not name or not folder:
            shown = mask_logins(text)
            raise InputError(
                f"--package-repo {shown}: this is not NAME=DIR or NAME=URL", hint="for example --package-repo peft=../peft"
            )
        found[name] = folder if "://" in folder else str(Path(folder).expanduser().absolute())
        if differing is not None and canonicalize_name(name) not in differing and not is_submodule(name):
            known = f"those that do: {', '.join(sorted(differing))}" if differing else "no package does"
            say_note(f"--package-repo {name}: this package does not differ between the ends; {known}")
    found = {name: str(clone_of(place, home)) if "://" in place else place for name, place in found.items()}
    for name, folder in found.items():
        _check_repository(name, folder)
    return tuple(sorted((canonicalize_name(name), folder) for name, folder in found.items()))


def _check_repository(name: str, folder: str) -> None:
    """Raise InputError where a package's repository cannot be one."""
    shown = f"the repository of {name}: {mask_logins(folder)}"
    if not Path(folder).is_dir():
        raise InputError(f"{shown} is no folder", hint="clone it, then name the clone")
    if not is_repository(Path(folder)):
        raise InputError(f"{shown} is no git repository", hint="name a clone of the package's repository, its top folder")


def _place(text: str, base: Path) -> str:
    """Return a folder as an absolute path; an address stays as it is."""
    return text if "://" in text else str((base / Path(text).expanduser()).absolute())


def installed_packages(python: str, *, option: str = "--python") -> tuple[str, ...]:
    """Return `name==version` of every distribution that an interpreter has.

    Raises:
        InputError: it cannot be started, or is something else.
    """
    code = (
        f"{ALONE}import importlib.metadata as m, json\n"
        "print(json.dumps(sorted({(d.metadata['Name'], d.version) for d in m.distributions() if d.metadata['Name']})))"
    )
    try:
        found = json.loads(_ask_python(python, code, option))
    except ValueError:
        hint = f"{option} takes the path of a python executable"
        raise InputError(f"{python} is no Python interpreter", hint=hint) from None
    return tuple(f"{canonicalize_name(name)}=={version}" for name, version in found)


def _ask_python(python: str, code: str, option: str) -> str:
    """Return what an interpreter prints. Raises InputError where it cannot be started."""
    failure = ""
    try:
        result = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        if result.returncode:
            failure = (result.stderr.strip().splitlines() or [f"exit status {result.returncode}"])[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        failure = str(error)
    if failure:
        raise InputError(f"the interpreter {python} cannot be used: {failure}", hint=f"name another one with {option}")
    return result.stdout


def is_dotenv(path: Path) -> bool:
    """Return whether a file's name says that it holds environment variables."""
    return path.suffix == ".env" or path.name.startswith(".env")
