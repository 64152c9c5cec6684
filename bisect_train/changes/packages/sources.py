"""What the readers of package files share: where a line stands, how a mistake is told, how another file is reached."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bisect_train.changes.packages.pins import Pin
from bisect_train.core.errors import InputError
from bisect_train.core.secrets import mask_logins

Include = Callable[[str], str]
"""Returns the text of another file, named relative to the root; raises FileNotFoundError or InputError."""


@dataclass(frozen=True, slots=True)
class Source:
    """A package file that is being read.

    Attributes:
        name: its path relative to the root, with forward slashes (`requirements/base.txt`).
        shown: how messages name it.
        include: reads the files that it includes.
        environment: values of environment markers, on top of those of this interpreter.
        root: folder on this machine that `name` is relative to, or None for a file of a commit.
    """

    name: str
    shown: str
    include: Include
    environment: Mapping[str, str]
    root: Path | None = None

    def refuse(self, value: str, rule: str, *, line: int | str = 0, hint: str = "") -> InputError:
        """Return the error about one place of the file; `line` is a number, or words such as `[[package]] 3`."""
        where = f", line {line}" if isinstance(line, int) and line else f", {line}" if line else ""
        value = mask_logins(value)
        shown = value if len(value) <= 200 else value[:197] + "..."
        return InputError(
            f"{self.shown}{where}: {shown!r}: {rule}", hint=hint or "correct the file, then run `bisect-train diff` again"
        )

    def holds(self, marker: str, *, line: int | str = 0) -> bool:
        """Return whether an environment marker holds; an empty one does."""
        if not marker:
            return True
        try:
            return Marker(marker).evaluate({"extra": "", **self.environment})
        except ValueError as error:  # malformed, an unknown name, or a version of thousands of digits
            raise self.refuse(marker, f"no environment marker: {_first_line(error)}", line=line) from None

    def pin_of_text(self, text: str, *, line: int | str = 0) -> Pin | None:
        """Return the pin of one requirement (`torch>=2; python_version > '3.9'`), None where its marker does not hold."""
        try:
            parsed = Requirement(text)
            specifier = str(parsed.specifier)
        except ValueError as error:  # InvalidRequirement, or a version of thousands of digits
            rule = f"no requirement: {_first_line(error)}"
            raise self.refuse(text, rule, line=line, hint="write NAME==VERSION or NAME @ URL") from None
        marker = str(parsed.marker or "")
        if not self.holds(marker, line=line):
            return None
        return Pin(
            name=canonicalize_name(parsed.name),
            specifier=specifier,
            url=self.absolute_reference(parsed.url) if parsed.url else "",
            extras=tuple(sorted(canonicalize_name(extra) for extra in parsed.extras)),
            marker=marker,
        )

    def absolute_reference(self, reference: str) -> str:
        """Return a direct reference with a relative path made absolute, where the root's folder is known."""
        path = local_path(reference)
        if path is None or path.is_absolute():
            return path.as_uri() + _fragment_of(reference) if path else reference
        found = self.folder_path(path)
        return found.as_uri() + _fragment_of(reference) if found else f"./{path.as_posix()}"

    def folder_path(self, relative: Path) -> Path | None:
        """Return where a relative path lies: beside the root, as pip reads it, else beside the file itself."""
        if self.root is None:
            return None
        beside = self.root / PurePosixPath(self.name).parent
        is_beside = os.path.exists(beside / relative) and not os.path.exists(self.root / relative)  # noqa: PTH110  # any name
        place = beside if is_beside else self.root
        return (place / relative).resolve()

    def is_inside(self, reference: str) -> bool:
        """Return whether a direct reference names a folder of the repository itself, which each checkout brings along."""
        path = local_path(reference)
        if path is None or path.suffix in (".whl", ".gz", ".zip", ".tar"):
            return False
        if self.root is None:
            return not path.is_absolute() and ".." not in path.parts
        return (self.root / path).resolve().is_relative_to(self.root.resolve())


def local_path(reference: str) -> Path | None:
    """Return the path of a `file:` address or of a plain path, None for any other address."""
    try:
        parts = urlsplit(reference)
    except ValueError:  # a host such as `[::`: an address, if none that can be reached
        return None
    if parts.scheme == "file":
        return _path_of(unquote(parts.path))
    if "://" in reference or parts.scheme:
        return None
    return _path_of(reference.partition("#")[0].partition("[")[0])


def _path_of(text: str) -> Path | None:
    """Return a path, None where no file can have this name: JSON and TOML may hold NULs and half characters."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return None
    return None if "\0" in text else Path(text)


def _fragment_of(reference: str) -> str:
    _, mark, fragment = reference.partition("#")
    return mark + fragment


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
