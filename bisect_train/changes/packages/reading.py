"""Read the packages that a requirement, lock or environment file pins, whatever its format.

The format is told by the file's name. Markers are evaluated for this interpreter unless the caller brings the values of
another one. Nothing is resolved here and nothing is fetched.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from bisect_train.changes.packages import locks
from bisect_train.changes.packages.pins import Pin
from bisect_train.changes.packages.requirements import read_requirements
from bisect_train.changes.packages.sources import Include, Source
from bisect_train.core.errors import InputError

__all__ = ["Pin", "read_packages", "read_packages_text"]

_BY_NAME: dict[str, Callable[[Source, str], dict[str, Pin]]] = {
    "pyproject.toml": locks.read_pyproject,
    "uv.lock": locks.read_uv_lock,
    "poetry.lock": locks.read_poetry_lock,
    "pipfile.lock": locks.read_pipfile_lock,
}
_FORMATS = (
    "requirements.txt, `pip freeze` text, pyproject.toml, uv.lock, poetry.lock, pylock.toml, Pipfile.lock, environment.yml, "
    "conda-lock.yml"
)


def read_packages(path: Path, *, root: Path | None = None, environment: Mapping[str, str] | None = None) -> dict[str, Pin]:
    """Return the pins of a file on this disk, by canonical name.

    Args:
        path: of the file.
        root: folder that included files must lie in; the file's own folder if None. Packages that lie in it themselves
            are no pins: each checkout brings them along.
        environment: values of environment markers (`python_version`) in place of this interpreter's.
    Raises:
        InputError: missing, unreadable or malformed; names file, line, value and rule.
    """
    base = (root or path.parent).absolute()
    name = Path(os.path.relpath(path.absolute(), base)).as_posix()
    if name.startswith("../"):
        raise InputError(f"{path}: this file lies outside of {base}", hint="give a file in that folder")
    source = Source(name, str(path), lambda inner: _read_text(base / inner), environment or {}, base)
    try:
        text = _read_text(path)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file", hint="give the path of an existing file") from None
    return _read(source, text)


def read_packages_text(
    name: str, text: str, *, include: Include | None = None, environment: Mapping[str, str] | None = None
) -> dict[str, Pin]:
    """Return the pins of a file that is not on the disk, such as that of a commit, by canonical name.

    Args:
        name: its path in the tree, with forward slashes; tells the format.
        text: its content.
        include: returns the text of another path of the same tree, or raises FileNotFoundError.
        environment: see `read_packages`.
    Raises:
        InputError: malformed; names file, line, value and rule.
    """
    return _read(Source(name, name, include or _nothing, environment or {}), text)


def _read(source: Source, text: str) -> dict[str, Pin]:
    file_name = PurePosixPath(source.name).name.lower()
    reader = _BY_NAME.get(file_name)
    if reader is None and file_name.startswith("pylock.") and file_name.endswith(".toml"):
        reader = locks.read_pylock
    if reader is None and file_name.endswith((".yml", ".yaml")):
        reader = locks.read_conda_lock if "conda-lock" in file_name else locks.read_conda_environment
    if reader is not None:
        return reader(source, text)
    if file_name.endswith((".toml", ".json", ".lock", ".cfg", ".py")):
        raise source.refuse(file_name, "packages are not read from such a file", hint=f"give one of: {_FORMATS}")
    return read_requirements(source, text)


def _nothing(name: str) -> str:
    raise FileNotFoundError(name)


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise InputError(f"{path}: cannot read this file: {reason}", hint=f"look at `ls -ld {path}`") from None
    except UnicodeDecodeError as error:
        hint = "save it as UTF-8 text"
        raise InputError(f"{path}: this file is not UTF-8 text (byte {error.start})", hint=hint) from None
