"""The local files that an overlay is made from, by content: two wheels of one name and version need not be the same."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from bisect_train_workers.data_links import CannotStartError

_PASSED_OVER = frozenset([".git", "__pycache__", "build", "dist", ".venv", ".mypy_cache", ".pytest_cache"])


def local_inputs(requirements: Sequence[str], find_links: Sequence[str]) -> list[list[str]]:
    """Return (file name, digest of its content) of all local files that could be used, sorted.

    Raises:
        CannotStartError: a requirement cannot be read, a folder or a file that is named is not on this machine.
    """
    wanted = [_parse(text) for text in requirements]
    files = {path for place in find_links for path in _files_of_links(place, wanted)}
    named = [[path.name, _digest(path)] for path in files]
    referenced = [[item.name, _digest_of_reference(item)] for item in wanted if item.url and _local_path(item.url)]
    return sorted([*named, *referenced])


def _parse(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise CannotStartError(f"{text!r} is no requirement: {str(error).splitlines()[0]}") from None


def _files_of_links(place: str, wanted: Sequence[Requirement]) -> Iterator[Path]:
    folder = _local_path(place)
    if folder is None:
        return
    if not folder.is_dir():
        raise CannotStartError(f"the folder of packages {place} does not exist on this machine")
    for path in folder.iterdir():
        found = _release_of(path.name)
        if found and any(_could_be(item, *found) for item in wanted):
            yield path


def _release_of(file_name: str) -> tuple[str, Version] | None:
    try:
        name, version, *_ = parse_wheel_filename(file_name)
        return name, version
    except InvalidWheelFilename:
        pass
    try:
        return parse_sdist_filename(file_name)
    except InvalidSdistFilename:
        return None


def _could_be(requirement: Requirement, name: str, version: Version) -> bool:
    is_named = canonicalize_name(requirement.name) == name and not requirement.url
    return is_named and requirement.specifier.contains(version, prereleases=True)


def _local_path(place: str) -> Path | None:
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(place)


def _digest_of_reference(requirement: Requirement) -> str:
    path = _local_path(requirement.url or "")
    assert path is not None
    if not path.exists():
        raise CannotStartError(f"{path} (for {requirement.name}) does not exist on this machine")
    return _digest(path)


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of a source folder's files with their names."""
    if path.is_file():
        return _digest_of_file(path)
    whole = hashlib.sha256()
    for inner in sorted(path.rglob("*")):
        relative = inner.relative_to(path)
        if inner.is_file() and _PASSED_OVER.isdisjoint(relative.parts) and not relative.parts[0].endswith(".egg-info"):
            whole.update(f"{relative.as_posix()}\0{_digest_of_file(inner)}\n".encode())
    return whole.hexdigest()


def _digest_of_file(path: Path) -> str:
    seen = path.stat()
    return _digest_of_version(path, seen.st_size, seen.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _digest_of_version(path: Path, num_bytes: int, changed_ns: int) -> str:
    """Return the digest of a file as it was then; wheels can hold gigabytes, and every probe asks."""
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            whole.update(block)
    return whole.hexdigest()
