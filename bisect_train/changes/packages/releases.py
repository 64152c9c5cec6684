"""The releases of a package between two versions, from folders of wheels and from package indexes.

Which index is asked is the user's business: an address given for the question, else what pip is configured with
(`pip config list` knows its files and its PIP_* variables), else the default of the library that speaks to indexes.
No address stands in this code. What cannot be installed here is left out: yanked files, wheels for other machines,
releases for other versions of python; so are pre-releases, unless an end is one.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from bisect_train.changes.packages.interpreters import Interpreter, find_interpreter
from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.interpreters import module_command
from bisect_train.core.secrets import mask_logins

if TYPE_CHECKING:
    from pypi_simple import ProjectPage, PyPISimple

__all__ = ["releases_between"]

_LIMIT_S = 60.0
_METADATA_BYTES = 2**20
_CONFIG_LINE = re.compile(r"(?P<section>[^=\s]+)\.(?P<key>[a-z-]+)=(?P<value>.*)")
_SECTIONS = ("global", "download", "install", ":env:")
"""Of pip's configuration, from weak to strong."""


@dataclass(frozen=True, slots=True)
class _Places:
    """Where releases are looked for; `indexes` None is the library's own default."""

    links: tuple[str, ...]
    indexes: tuple[str, ...] | None
    certificate: str = ""


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a release that is offered somewhere."""

    name: str
    requires_python: str | None = None
    is_yanked: bool = False


def releases_between(
    name: str,
    low: str,
    high: str,
    *,
    find_links: Sequence[Path | str] = (),
    index: str = "",
    python: str = "",
) -> tuple[str, ...]:
    """Return the versions after `low` up to and including `high`, in order from `low`'s end.

    Args:
        name: of the package.
        low: version of the good end.
        high: version of the bad end; where it is the smaller one, the versions come in descending order.
        find_links: folders with wheels and source archives, and addresses of pages that list them.
        index: address of a package index; "" asks those that pip is configured with, "none" asks none.
        python: interpreter that will run the releases, "" for this process's.
    Returns:
        Versions as their files write them; the last one is `high`.
    Raises:
        InputError: a version cannot be read, a folder is missing, or `high` is found nowhere.
        MachineError: an index cannot be reached, or the library that speaks to indexes is not installed.
    """
    first, last = _version(name, low), _version(name, high)
    places = _places_of(find_links, index, python or sys.executable)
    found = _versions_of(name, _files(name, places), find_interpreter(python), keep_yanked=last)
    if last not in found:
        where = (
            ", ".join([*places.links, *(places.indexes or ["the index"] if places.indexes != () else [])]) or "no place at all"
        )
        where = mask_logins(where)
        raise InputError(
            f"{name} {high} was not found in {where}",
            hint="name a folder that has it: --find-links DIR, or an index: --index-url URL",
        )
    has_prerelease = first.is_prerelease or last.is_prerelease
    lower, upper = min(first, last), max(first, last)
    between = [
        item for item in found if lower <= item <= upper and item != first and (has_prerelease or not item.is_prerelease)
    ]
    return tuple(found[item] for item in sorted(between, reverse=first > last))


def _version(name: str, text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        hint = "releases are opened between two exact versions, such as 1.4 and 2.0"
        raise InputError(f"{name}: {text!r} is no version", hint=hint) from None


def _versions_of(name: str, files: Iterable[_File], interpreter: Interpreter, *, keep_yanked: Version) -> dict[Version, str]:
    """Return version -> its text for the files that this interpreter can install."""
    found: dict[Version, str] = {}
    for file in files:
        version = _usable_version(name, file.name, interpreter)
        if version is None or not interpreter.is_allowed(file.requires_python):
            continue
        if not file.is_yanked or version == keep_yanked:
            found.setdefault(version, str(version))
    return found


def _usable_version(name: str, file_name: str, interpreter: Interpreter) -> Version | None:
    """Return the version in a file's name, None for another package's file or a wheel that does not fit."""
    try:
        wheel_name, version, _, tags = parse_wheel_filename(file_name)
        return version if wheel_name == canonicalize_name(name) and interpreter.takes(tags) else None
    except InvalidWheelFilename:
        pass
    try:
        archive_name, version = parse_sdist_filename(file_name)
        return version if archive_name == canonicalize_name(name) else None
    except InvalidSdistFilename:
        return None


def _files(name: str, places: _Places) -> Iterator[_File]:
    for place in places.links:
        yield from _files_of_links(name, place, places)
    if places.indexes is None:
        yield from _files_of_index(name, "", places)
    for address in places.indexes or ():
        yield from _files_of_index(name, address, places)


def _files_of_links(name: str, place: str, places: _Places) -> Iterator[_File]:
    folder = _local_folder(place)
    if folder is None:
        yield from _files_of_page(_fetch_page(name, place, places))
        return
    if not folder.is_dir():
        raise InputError(f"--find-links {place}: there is no such folder", hint="give a folder that holds wheels")
    for path in sorted(folder.iterdir()):
        if _is_file_of(name, path.name):
            yield _File(path.name, _requires_python(path))


def _files_of_index(name: str, address: str, places: _Places) -> Iterator[_File]:
    """Yield what an index, "" for the library's own, offers; an index that does not know the package offers nothing."""
    folder = _local_folder(address) if address else None
    if folder is None:
        page = _ask_index(name, address, places)
        yield from _files_of_page(page) if page else ()
        return
    listing = folder / canonicalize_name(name)
    if (listing / "index.html").is_file():
        text = (listing / "index.html").read_text(encoding="utf-8")
        yield from _files_of_page(_library().ProjectPage.from_html(name, text, base_url=listing.as_uri() + "/"))
    elif listing.is_dir():
        yield from _files_of_links(name, str(listing), places)


def _files_of_page(page: ProjectPage) -> Iterator[_File]:
    for package in page.packages:
        yield _File(package.filename, package.requires_python, package.is_yanked)


def _ask_index(name: str, address: str, places: _Places) -> ProjectPage | None:
    library = _library()
    import requests

    try:
        with _client(address, places) as client:
            return client.get_project_page(name, timeout=_LIMIT_S)
    except library.NoSuchProjectError:
        return None
    except (requests.RequestException, ValueError) as error:
        raise _unreachable(name, address or "the package index", error) from None


def _fetch_page(name: str, address: str, places: _Places) -> ProjectPage:
    library = _library()
    import requests

    try:
        with _client("", places) as client:
            answer = client.s.get(address, timeout=_LIMIT_S)
            answer.raise_for_status()
            page: ProjectPage = library.ProjectPage.from_html(name, answer.content, base_url=address)
            return page
    except requests.RequestException as error:
        raise _unreachable(name, address, error) from None


def _client(address: str, places: _Places) -> PyPISimple:
    library = _library()
    client: PyPISimple = library.PyPISimple(address) if address else library.PyPISimple()
    if places.certificate:
        client.s.verify = places.certificate
    return client


def _unreachable(name: str, address: str, error: Exception) -> MachineError:
    parts = urlsplit(address)
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()  # no password in a message
    return MachineError(
        f"cannot ask {shown} for the releases of {name}: {type(error).__name__}",
        hint="try again, or take the releases from a folder: --find-links DIR --index-url none",
    )


def _library() -> Any:
    try:
        import pypi_simple
    except ImportError:
        raise MachineError(
            "package indexes are read by the library pypi-simple, which is not installed",
            hint="pip install 'bisect-train[packages]', or take the releases from a folder: --find-links DIR --index-url none",
        ) from None
    return pypi_simple


def _local_folder(place: str) -> Path | None:
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme in ("http", "https") else Path(place)


def _is_file_of(name: str, file_name: str) -> bool:
    """Return whether a file's name begins as the package's wheels and archives do."""
    stem = re.split(r"-\d", file_name, maxsplit=1)[0]
    return canonicalize_name(stem) == canonicalize_name(name)


def _requires_python(path: Path) -> str | None:
    """Return a wheel's `Requires-Python`, None where it has none or where it cannot be read."""
    if path.suffix != ".whl":
        return None
    try:
        with zipfile.ZipFile(path) as wheel:
            metadata = next(item for item in wheel.namelist() if item.endswith(".dist-info/METADATA"))
            data = wheel.open(metadata).read(_METADATA_BYTES)  # a file of a few kilobytes can hold gigabytes
    except (OSError, zipfile.BadZipFile, zlib.error, StopIteration, KeyError, RuntimeError, NotImplementedError):
        return None
    return HeaderParser().parsestr(data.decode("utf-8", errors="replace")).get("Requires-Python")


def _places_of(find_links: Sequence[Path | str], index: str, python: str) -> _Places:
    links = tuple(str(item) for item in find_links)
    if index == "none":
        return _Places(links, ())
    configured = _pip_settings(python)
    certificate = configured.get("cert", "")
    if index:
        return _Places(links, (index,), certificate)
    links = (*links, *(item for item in configured.get("find-links", "").split() if item not in links))
    if configured.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        return _Places(links, (), certificate)
    extra = tuple(configured.get("extra-index-url", "").split())
    main = configured.get("index-url", "")
    return _Places(links, (main, *extra) if main or extra else None, certificate)


def _pip_settings(python: str) -> dict[str, str]:
    """Return pip's settings that say where packages come from; {} where there is no pip."""
    command = module_command(python, "pip", "--disable-pip-version-check", "config", "list")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return _settings_of(done.stdout)


def _settings_of(text: str) -> dict[str, str]:
    """Return key -> value of the lines of `pip config list`; the stronger of two sections wins."""
    found: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in text.splitlines():
        matched = _CONFIG_LINE.fullmatch(line.strip())
        if matched and matched["section"] in found:
            try:
                value = str(ast.literal_eval(matched["value"]))
            except (ValueError, SyntaxError):
                continue
            found[matched["section"]][matched["key"]] = value
    return {key: value for section in _SECTIONS for key, value in found[section].items()}
