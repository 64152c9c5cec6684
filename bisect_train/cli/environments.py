"""Interpreters, packages' sources and their repositories, from options and a recipe."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from packaging.utils import canonicalize_name

from bisect_train.cli.data_ends import digest_given
from bisect_train.cli.finding import find_python
from bisect_train.cli.options import Asked
from bisect_train.core.changes import digest_of
from bisect_train.core.errors import InputError
from bisect_train.core.probe import EnvironmentSettings
from bisect_train.recipe import Recipe


def interpreters(asked: Asked) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return path and description of each end's interpreter where they differ, else ("", "") twice."""
    if asked.bad_python is None:
        return ("", ""), ("", "")
    paths = (find_python(asked.python), find_python(asked.bad_python))
    return (paths[0], _describe(paths[0])), (paths[1], _describe(paths[1]))


def _describe(python: str) -> str:
    version = _ask_python(python, "import platform; print(platform.python_version())").strip()
    return f"{version} {digest_of(list(_installed(python)))}"


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
    links = tuple(_place(text, base) for text in (*given.find_links, *asked.find_links))
    folders = [Path(link) for link in links if "://" not in link]
    digests = [digest_given("--find-links", folder) for folder in folders] if differs else []
    return EnvironmentSettings(
        mode="uv" if given.mode == "uv" else "overlay",
        find_links=links,
        index=asked.index_url or given.index,
        digest=digest_of(digests) if digests else "",
        files=given.files,
        installed=_installed(python) if given.files and given.mode != "uv" else (),
    )


def package_repos(asked: Asked, recipe: Recipe) -> tuple[tuple[str, str], ...]:
    """Return (canonical name, absolute folder) of the packages' repositories.

    Raises:
        InputError: not NAME=DIR, or no such folder.
    """
    found = {name: _place(folder, Path(asked.repo)) for name, folder in recipe.environment.package_repos}
    for text in asked.package_repo:
        name, equals, folder = text.partition("=")
        if not equals or not name or not folder:
            raise InputError(f"--package-repo {text}: this is not NAME=DIR", hint="for example --package-repo peft=../peft")
        found[name] = str(Path(folder).expanduser().absolute())
    for name, folder in found.items():
        if not Path(folder).is_dir():
            raise InputError(f"the repository of {name}: {folder} is no folder", hint="clone it, then name the clone")
    return tuple(sorted((canonicalize_name(name), folder) for name, folder in found.items()))


def _place(text: str, base: Path) -> str:
    """Return a folder as an absolute path; an address stays as it is."""
    return text if "://" in text else str((base / Path(text).expanduser()).absolute())


def _installed(python: str) -> tuple[str, ...]:
    """Return `name==version` of every distribution that an interpreter has.

    Raises:
        InputError: it cannot be started, or is something else.
    """
    code = (
        "import importlib.metadata as m, json\n"
        "print(json.dumps(sorted({(d.metadata['Name'], d.version) for d in m.distributions() if d.metadata['Name']})))"
    )
    try:
        found = json.loads(_ask_python(python, code))
    except ValueError:
        raise InputError(f"{python} is no Python interpreter", hint="name the path of a python executable") from None
    return tuple(f"{canonicalize_name(name)}=={version}" for name, version in found)


def _ask_python(python: str, code: str) -> str:
    """Return what an interpreter prints. Raises InputError where it cannot be started."""
    failure = ""
    try:
        result = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        if result.returncode:
            failure = (result.stderr.strip().splitlines() or [f"exit status {result.returncode}"])[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        failure = str(error)
    if failure:
        raise InputError(f"the interpreter {python} cannot be used: {failure}", hint="name another one with --python")
    return result.stdout


def is_dotenv(path: Path) -> bool:
    """Return whether a file's name says that it holds environment variables."""
    return path.suffix == ".env" or path.name.startswith(".env")
