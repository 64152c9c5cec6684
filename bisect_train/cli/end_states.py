"""What the two ends have beside commits and configs, from options: variables, packages, data, launch settings."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from bisect_train.changes.config_dotenv import load_dotenv
from bisect_train.changes.hydra_axis import check_place
from bisect_train.changes.packages import Pin, diff_packages, read_packages
from bisect_train.changes.repository import Repository
from bisect_train.changes.tree_files import read_file
from bisect_train.cli.asked import Asked
from bisect_train.cli.data_ends import data_ends
from bisect_train.cli.environments import interpreters, is_dotenv
from bisect_train.core.changes import DataLink, FilePatch
from bisect_train.core.errors import InputError
from bisect_train.core.question import ConfigEnd, ConfigHold, EndState, Range
from bisect_train.recipe import Recipe

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
    good_data, bad_data = data_ends(asked, links)
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
    pythons, hydra = interpreters(asked), _hydra_ends(asked, recipe)
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
        missing = asked.option("bad" if asked.good_image else "good", "image")
        raise InputError(
            f"the launcher in {recipe.path} takes an {{image}}, and {missing} does not name one",
            hint=f"name it with {missing}; for one image everywhere write it into the launcher",
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
    options = asked.option("good", "hydra"), asked.option("bad", "hydra")
    ends = tuple(_split(option, text or "") for option, text in zip(options, given, strict=True))
    return ends[0], ends[1]


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


def _split(option: str, text: str) -> tuple[str, ...]:
    """Return one argument as a list of arguments."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"{option} {text!r} cannot be read: {error}", hint="quote it as for a shell") from None
    if not words:
        raise InputError(f"{option} is empty", hint="give the whole text in one argument")
    return words
