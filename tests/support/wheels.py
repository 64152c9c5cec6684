"""Tiny pure-python wheels, written by hand, for tests of packages."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n"
_MADE = (2020, 1, 1, 0, 0, 0)


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str],
    requires: Sequence[str] = (),
    *,
    tag: str = "py3-none-any",
    requires_python: str = "",
) -> Path:
    """Write a wheel and return its path; the same content always gives the same bytes.

    Args:
        folder: where it is put; made if need be.
        name, version: of the distribution.
        files: path in the wheel -> text, such as `{"toyopt/__init__.py": "..."}`.
        requires: its `Requires-Dist` lines.
        tag: of its file name.
        requires_python: its `Requires-Python`, or "".
    """
    stem = f"{name.replace('-', '_')}-{version}"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {requires_python}"] * bool(requires_python)
    lines += [f"Requires-Dist: {item}" for item in requires]
    info = f"{stem}.dist-info"
    content = dict(files) | {f"{info}/METADATA": "\n".join(lines) + "\n", f"{info}/WHEEL": _WHEEL.format(tag=tag)}
    content[f"{info}/RECORD"] = "".join(map(_record_line, content.items())) + f"{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for place, text in content.items():
            wheel.writestr(zipfile.ZipInfo(place, _MADE), text)
    return path


def _record_line(item: tuple[str, str]) -> str:
    place, text = item
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{place},sha256={digest},{len(text.encode())}\n"
