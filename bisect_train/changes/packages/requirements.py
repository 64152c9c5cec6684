"""Requirement files as pip reads them, and what `pip freeze` prints (the same syntax).

Options that say where packages come from (`--index-url`, `--find-links`) are no pins and are left out; hashes are left
out too, since two releases of one version cannot be told apart by a person. Variables such as `${TOKEN}` stay as they
are written: pip fills them in, and a report must not show them.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from bisect_train.changes.packages.pins import Pin, join_pins, name_of_reference
from bisect_train.changes.packages.sources import Source, local_path
from bisect_train.core.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_COMMENT = re.compile(r"(^|\s)#.*$")
_INCLUDE = re.compile(r"(-r|-c|--requirement|--constraint)(?:\s*=\s*|\s+|(?<=-r)|(?<=-c))(\S.*)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=\s*|\s+)(\S.*)")
_PER_REQUIREMENT = re.compile(r"\s--?(hash|global-option|config-settings?|C)\b.*$")
_FREEZE_NAME = re.compile(r"#\s*Editable .*\(([A-Za-z0-9._-]+)==[^)]*\)")
_MAX_NOTE = 1000  # characters of such a comment: the expression takes squared time
_EXTRAS = re.compile(r"\[([^\[\]]*)\]\s*$")
_IS_PLACE = re.compile(r"^(\.{1,2}([/\\]|$)|/|[a-z][a-z0-9+.-]*://|git\+|file:)|(\.whl|\.zip|\.tar\.gz)(#\S*)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Line:
    """A logical line: number of its first line in the file (1-based), text without comment, and the line before it."""

    number: int
    text: str
    before: str


def read_requirements(source: Source, text: str, *, opened: tuple[str, ...] = ()) -> dict[str, Pin]:
    """Return the pins of a requirement file and of what it includes.

    Args:
        source: where the text comes from.
        text: of the file.
        opened: files that include this one, from the outermost.
    Raises:
        InputError: a line cannot be read, two lines contradict each other, an included file is missing.
    """
    pins: dict[str, Pin] = {}
    for line in _logical_lines(text):
        for pin in _pins_of_line(source, line, opened=(*opened, source.name)):
            try:
                pins[pin.name] = join_pins(pins[pin.name], pin) if pin.name in pins else pin
            except ValueError as error:
                raise source.refuse(line.text, str(error), line=line.number, hint="keep one of the two lines") from None
    return pins


def pins_of_list(source: Source, lines: list[str], *, place: str) -> dict[str, Pin]:
    """Return the pins of requirement lines that stand in another file (conda's `pip:` list); `place` names the list."""
    try:
        return read_requirements(source, "\n".join(lines))
    except InputError as error:
        message = re.sub(r", line \d+", f", {place}", error.message, count=1)
        raise InputError(message, hint=error.hint) from None


def _logical_lines(text: str) -> Iterator[_Line]:
    """Yield lines with continuations joined and comments cut, as pip does it: a comment ends a continuation."""
    parts: list[str] = []
    number, before = 1, ""
    for idx, raw in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        number = number if parts else idx
        if raw.endswith("\\") and not raw.lstrip().startswith("#"):
            parts.append(raw[:-1])
            continue
        joined = _COMMENT.sub("", "".join([*parts, raw if not parts else " " + raw.lstrip()])).strip()
        parts = []
        if joined:
            yield _Line(number, joined, before)
        before = raw
    rest = _COMMENT.sub("", "".join(parts)).strip()
    if rest:
        yield _Line(number, rest, before)


def _pins_of_line(source: Source, line: _Line, *, opened: tuple[str, ...]) -> Iterator[Pin]:
    included = _INCLUDE.fullmatch(line.text)
    if included:
        yield from _included(source, line, target=included[2].strip().strip("'\""), opened=opened).values()
        return
    editable = _EDITABLE.fullmatch(line.text)
    if editable:
        yield from _referenced(source, line, editable[1])
        return
    if line.text.startswith("-"):
        return
    requirement = _PER_REQUIREMENT.sub("", line.text).strip()
    if " @ " not in requirement and _IS_PLACE.search(requirement.partition(";")[0].strip()):
        yield from _referenced(source, line, requirement)
        return
    pin = source.pin_of_text(requirement, line=line.number)
    if pin is not None and not (pin.url and source.is_inside(pin.url)):
        yield pin


def _included(source: Source, line: _Line, *, target: str, opened: tuple[str, ...]) -> dict[str, Pin]:
    """Return the pins of an included file; its path is relative to the including one and stays below the root."""
    if "://" in target:
        rule = "an included file must lie on this disk"
        raise source.refuse(line.text, rule, line=line.number, hint="download it and include the copy")
    name = posixpath.normpath(str(PurePosixPath(source.name).parent / target))
    if posixpath.isabs(name) or name.split("/")[0] == ".." or "\0" in name:
        rule = "an included file must lie in the folder of the file that is compared, or below it"
        raise source.refuse(line.text, rule, line=line.number, hint="compare the files that it includes one by one")
    if name in opened:
        raise source.refuse(line.text, f"the file includes itself: {' -> '.join([*opened, name])}", line=line.number)
    try:
        text = source.include(name)
    except FileNotFoundError:
        raise source.refuse(line.text, f"there is no file {name}", line=line.number) from None
    shown = str(PurePosixPath(source.shown).parent / posixpath.relpath(name, str(PurePosixPath(source.name).parent)))
    return read_requirements(replace(source, name=name, shown=posixpath.normpath(shown)), text, opened=opened)


def _referenced(source: Source, line: _Line, text: str) -> Iterator[Pin]:
    """Yield the pin of a path or an address without a name in front; the repository's own packages are no pins."""
    reference, *rest = re.split(r"\s+;\s*|;\s+", text.strip(), maxsplit=1)
    marker = rest[0] if rest else ""
    if not source.holds(marker, line=line.number) or source.is_inside(reference):
        return
    name = _name_of(source, reference, line)
    if not name:
        rule = "the package's name is not known"
        raise source.refuse(line.text, rule, line=line.number, hint="write NAME @ ADDRESS")
    extras = _EXTRAS.search(reference)
    yield Pin(
        name=name,
        url=source.absolute_reference(_EXTRAS.sub("", reference)),
        extras=tuple(
            sorted(canonicalize_name(item.strip()) for item in extras[1].split(",") if item.strip()) if extras else ()
        ),
        marker=marker,
    )


def _name_of(source: Source, reference: str, line: _Line) -> str:
    """Return the name of a direct reference: as it says itself, as `pip freeze` wrote above it, or of a local folder."""
    said = _FREEZE_NAME.match(line.before.strip()[:_MAX_NOTE])
    if said:
        return canonicalize_name(said[1])
    name = name_of_reference(_EXTRAS.sub("", reference))
    path = local_path(reference)
    if name or path is None:
        return name
    folder = path if path.is_absolute() else source.folder_path(path)
    return _name_of_project(folder) if folder else canonicalize_name(path.name)


def _name_of_project(folder: Path) -> str:
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
        return canonicalize_name(str(project["name"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return canonicalize_name(folder.name)
