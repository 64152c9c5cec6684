"""What the two ends have beside commits and configs, from options: variables, packages, data, launch settings."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from bisect_train.changes.config_dotenv import load_dotenv
from bisect_train.changes.data import digest_path
from bisect_train.changes.hydra_axis import check_place
from bisect_train.changes.packages import Pin, diff_packages, read_packages
from bisect_train.changes.repository import Repository
from bisect_train.changes.tree_files import read_file
from bisect_train.cli.finding import find_python
from bisect_train.cli.options import Asked
from bisect_train.core.changes import DataLink, FilePatch, digest_of
from bisect_train.core.errors import InputError
from bisect_train.core.probe import EnvironmentSettings
from bisect_train.core.question import ConfigEnd, ConfigHold, DataEnd, EndState, Range
from bisect_train.recipe import Recipe
from bisect_train.recipe.wire import inside_checkout

MAX_VARIABLE_BYTES = 128 * 2**10 - 1
"""Length of NAME=VALUE with which Linux starts a program."""


def end_states(asked: Asked, recipe: Recipe, links: Sequence[DataLink]) -> tuple[EndState, EndState]:
    """Return what each end has of its own.

    Args:
        asked: the options.
        recipe: whose launcher says where an image goes.
        links: the recipe's data links, with absolute sources; `--good-data` and `--bad-data` take their places.
    Raises:
        InputError: a file cannot be read, an option has no partner, a place is given twice.
    """
    good_data, bad_data = _data_ends(asked, links)
    pins = [_pins_of(paths, asked.repo) for paths in (asked.good_env, asked.bad_env)]
    for name, reason in diff_packages(*pins).unlayable() if all(pins) else ():
        raise InputError(
            f"the package {name} differs between the ends, and cannot be tried: {reason}",
            hint="take it out of both lists of packages",
        )
    good_packages, bad_packages = (tuple(pin.requirement for pin in found.values()) for found in pins)
    if bool(good_packages) != bool(bad_packages):
        missing, given = ("--bad-env", "--good-env") if good_packages else ("--good-env", "--bad-env")
        raise InputError(f"{given} lists packages, {missing} does not", hint="give the lists of both ends")
    _check_images(asked, recipe)
    pythons, hydra = _interpreters(asked), _hydra_ends(asked, recipe)
    good = EndState(
        env=_variables_of(asked.good_env),
        packages=good_packages,
        data=good_data,
        python=pythons[0][0],
        interpreter=pythons[0][1],
        image=asked.good_image,
        hydra=hydra[0],
    )
    bad = EndState(
        env=_variables_of(asked.bad_env),
        packages=bad_packages,
        data=bad_data,
        command=_bad_command(asked),
        ranks=asked.bad_ranks,
        python=pythons[1][0],
        interpreter=pythons[1][1],
        image=asked.bad_image,
        hydra=hydra[1],
    )
    return good, bad


def _check_images(asked: Asked, recipe: Recipe) -> None:
    """Raise InputError where images and the launcher do not fit together."""
    is_taken = any("{image}" in part for part in recipe.launcher)
    if (asked.good_image or asked.bad_image) and not is_taken:
        raise InputError(
            "a container image was named, but no launcher says how to start it",
            hint='for example `launcher: [apptainer, exec, --bind, /data, "{image}"]` in the recipe',
        )
    if is_taken and not (asked.good_image and asked.bad_image):
        missing = "--bad-image" if asked.good_image else "--good-image"
        raise InputError(
            f"the launcher in {recipe.path} takes an {{image}}, and {missing} does not name one",
            hint="`run` and `diff` take --good-image and --bad-image; for one image everywhere write it into the launcher",
        )


def _hydra_ends(asked: Asked, recipe: Recipe) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return name and overrides of each end's composition, or () twice."""
    given = (asked.good_hydra, asked.bad_hydra)
    if given == (None, None):
        return (), ()
    if None in given:
        raise InputError("--good-hydra and --bad-hydra belong together", hint="give both, e.g. `--good-hydra train`")
    if not recipe.config.hydra:
        raise InputError(
            "the recipe does not say where the Hydra configs are", hint="for example `config: {hydra: conf}` in the recipe"
        )
    check_place(asked.command or recipe.command)
    ends = tuple(_split(option, text or "") for option, text in zip(("--good-hydra", "--bad-hydra"), given, strict=True))
    return ends[0], ends[1]


def _split(option: str, text: str) -> tuple[str, ...]:
    """Return one argument as a list of arguments."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"{option} {text!r} cannot be read: {error}", hint="quote it as for a shell") from None
    if not words:
        raise InputError(f"{option} is empty", hint="give the whole text in one argument")
    return words


def _interpreters(asked: Asked) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return path and description of each end's interpreter where they differ, else ("", "") twice."""
    if asked.bad_python is None:
        return ("", ""), ("", "")
    paths = (find_python(asked.python), find_python(asked.bad_python))
    return (paths[0], _describe(paths[0])), (paths[1], _describe(paths[1]))


def _describe(python: str) -> str:
    version = _ask_python(python, "import platform; print(platform.python_version())").strip()
    return f"{version} {digest_of(list(_installed(python)))}"


def has_end_states(asked: Asked) -> bool:
    """Return whether the ends differ in more than their commits, as far as options say."""
    files = (asked.good_config, asked.good_env, asked.bad_env, asked.good_data, asked.bad_data)
    texts = (asked.bad_command, asked.bad_python, asked.good_hydra, asked.bad_hydra)  # an empty one is told as such
    is_text = any(text is not None for text in texts)
    return is_text or any((*files, asked.bad_ranks, asked.bad_image, asked.good_image))


def held_configs(
    hold: ConfigHold, path: str, repository: Repository, commits: Range
) -> tuple[ConfigEnd | None, ConfigEnd | None]:
    """Return what the repository's config file is at the two ends, for a question in which it does not travel.

    Raises:
        InputError: there is no such file at an end.
    """
    if not path:
        raise InputError(f"--hold-config {hold.value} needs a config file in the repository", hint="name it with --config FILE")
    good, bad = (_file_at(repository, commit, path) for commit in (commits.goods[0], commits.bad))
    if hold is ConfigHold.SPLIT:
        return good, bad
    held = good if hold is ConfigHold.GOOD else bad
    return held, held


def _file_at(repository: Repository, commit: str, path: str) -> ConfigEnd:
    text = read_file(repository.git, commit, path)
    if text is None:
        raise InputError(
            f"{path}: commit {commit[:12]} has no such text file, so it cannot be held",
            hint="name the path that both ends have, or leave out --hold-config",
        )
    return ConfigEnd(f"{path} at {commit[:12]}", FilePatch(path.rsplit("/", 1)[-1], text))


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
    digests = [_digest("--find-links", folder) for folder in folders] if differs else []
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


def _variables_of(paths: Sequence[Path]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for path in filter(is_dotenv, paths):
        try:
            values = load_dotenv(_read(path))
        except ValueError as error:
            raise InputError(f"{path}: {error}", hint='write NAME=VALUE; quote it where it has line breaks or " #"') from None
        for name, value in values.items():
            if value is None:
                raise InputError(f"{path}: {name} has no value", hint=f"write {name}=VALUE, or {name}= for an empty one")
            _check_variable(path, name, value)
            found[name] = value
    return tuple(sorted(found.items()))


def _check_variable(path: Path, name: str, value: str) -> None:
    """Raise InputError for a variable that no program can be started with, or that is not the user's to set."""
    if name.startswith("BISECT_TRAIN_") or name in ("PYTHONPATH", "PYTHONHASHSEED"):
        raise InputError(f"{path}: {name} belongs to the tool", hint="take it out of the file")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        hint = "names have letters, digits and underscores, and begin with no digit"
        raise InputError(f"{path}: {name!r} is no name of an environment variable", hint=hint)
    if "\0" in value:
        raise InputError(f"{path}: the value of {name} holds a NUL character", hint="take it out of the file")
    num_bytes = len(os.fsencode(f"{name}={value}"))
    if num_bytes > MAX_VARIABLE_BYTES:
        message = f"{path}: {name} and its value have {num_bytes} bytes, a program takes at most {MAX_VARIABLE_BYTES}"
        raise InputError(message, hint="put the value into a file, and name that file in the variable")


def _pins_of(paths: Sequence[Path], repo: Path) -> dict[str, Pin]:
    pins: dict[str, Pin] = {}
    for path in paths:
        if not is_dotenv(path):
            is_inside = path.resolve().is_relative_to(repo.resolve())
            pins |= read_packages(path, root=repo if is_inside else None)
    return pins


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"{path}: cannot be read: {reason}", hint="give a file of NAME=VALUE lines") from None


def _bad_command(asked: Asked) -> tuple[str, ...]:
    return () if asked.bad_command is None else _split("--bad-command", asked.bad_command)


def _data_ends(asked: Asked, links: Sequence[DataLink]) -> tuple[tuple[DataEnd, ...], tuple[DataEnd, ...]]:
    common = {link.target: link.source for link in links}
    given = [_sources_of(option, texts) for option, texts in (("--good-data", asked.good_data), ("--bad-data", asked.bad_data))]
    targets = sorted({*given[0], *given[1]})
    _check_apart(targets, [*targets, *common])
    ends: list[list[DataEnd]] = [[], []]
    for target in targets:
        for end, sources, option in zip(ends, given, ("--good-data", "--bad-data"), strict=True):
            source = sources.get(target) or common.get(target)
            if source is None:
                hint = f"give {option} {target}=PATH, or link {target} in the recipe"
                raise InputError(f"the data of only one end are known for {target}", hint=hint)
            end.append(DataEnd(DataLink(source, target), _digest(option, Path(source))))
    return tuple(ends[0]), tuple(ends[1])


def _check_apart(targets: Sequence[str], places: Sequence[str]) -> None:
    """Raise InputError where a target lies in another place that is linked."""
    for target in targets:
        for other in places:
            outer, inner = sorted((target, other), key=len)
            if inner.startswith(f"{outer}/"):
                raise InputError(
                    f"two links share a place in the checkout: {target} and {other}",
                    hint="link the outer one, or each inner one",
                )


def _digest(option: str, path: Path) -> str:
    """Return the digest of a file or folder that an option, or the recipe in its place, names."""
    if not os.path.lexists(path):
        raise InputError(f"{path}: there is no such file or folder", hint=f"correct {option}, or what the recipe has for it")
    return digest_path(path)


def _sources_of(option: str, texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        target, equals, source = text.partition("=")
        if not equals or not source or not target:
            raise InputError(f"{option} {text}: this is not TARGET=PATH", hint=f"for example {option} data/corpus=/data/v2")
        try:
            place = inside_checkout(PurePosixPath(target).as_posix())
        except ValueError as error:
            raise InputError(f"{option} {text}: {error}", hint="the target is a path in the checkout") from None
        if place in found:
            raise InputError(f"{option} {text}: {place} was given before", hint="give each place once")
        found[place] = str(Path(source).expanduser().absolute())
    return found
