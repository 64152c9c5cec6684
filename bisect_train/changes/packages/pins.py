"""A pin: what a requirement or lock file says about one package, in a form that two files can be compared by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import unquote, urlsplit

from packaging.specifiers import Specifier, SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from bisect_train.core.secrets import mask_logins


@dataclass(frozen=True, slots=True)
class Pin:
    """One package as a file names it.

    Attributes:
        name: canonical name (`torch-geometric`).
        specifier: `==2.0`, `>=1,<2`, or "" for any version and where `url` says it.
        url: direct reference (`git+https://...@commit`, `file:///...`), or "".
        extras: canonical names, in order.
        marker: the environment marker that held, as it was written, or "".
        needs: canonical names of the packages that it depends upon, where the file says so (lock files).
        is_conda: whether conda, not pip, installs it.
    """

    name: str
    specifier: str = ""
    url: str = ""
    extras: tuple[str, ...] = ()
    marker: str = ""
    needs: tuple[str, ...] = ()
    is_conda: bool = False

    @property
    def version(self) -> str:
        """The one version that the specifier allows, or "" if it allows several or a direct reference is given."""
        exact = [item.version for item in SpecifierSet(self.specifier) if _is_exact(item)]
        return exact[0] if exact else ""

    @property
    def is_exact(self) -> bool:
        """Whether it always means the same release; a direct reference counts."""
        return bool(self.url or self.version)

    @property
    def requirement(self) -> str:
        """The text that pip takes, without the marker (`toyopt==2.0`, `x @ file:///x.whl`)."""
        name = self.name + (f"[{','.join(self.extras)}]" if self.extras else "")
        if self.url:
            return f"{name} @ {self.url}"
        return f"{name}{exact_specifier(self.version)}" if self.version else f"{name}{self.specifier}"

    @property
    def shown(self) -> str:
        """What a title says: the version, else the specifier or the direct reference, after any extras."""
        extras = f"[{','.join(self.extras)}] " if self.extras else ""
        return extras + (self.url or self.version or self.specifier or "any version")


def exact_specifier(version: str) -> str:
    """Return the specifier of one version; a version that is none by PEP 440 (conda's `1.1.1w`) is matched as text."""
    try:
        Version(version)
    except ValueError:  # InvalidVersion, or thousands of digits
        return f"==={version}"
    return f"=={version}"


def is_same_pin(left: Pin, right: Pin) -> bool:
    """Return whether two pins of one package mean the same (`1.0` is `1.0.0`; the order of specifiers does not count)."""
    if (left.url, left.extras, left.is_conda) != (right.url, right.extras, right.is_conda):
        return False
    if left.version and right.version:
        return _version_key(left.version) == _version_key(right.version)
    try:
        return SpecifierSet(left.specifier) == SpecifierSet(right.specifier)
    except ValueError:  # a version of thousands of digits
        return left.specifier == right.specifier


def join_pins(left: Pin, right: Pin) -> Pin:
    """Return what two lines about one package say together.

    Raises:
        ValueError: they contradict each other.
    """
    if left.url and right.url and left.url != right.url:
        raise ValueError(f"{left.name} is asked for as {mask_logins(left.url)} and as {mask_logins(right.url)}")
    return Pin(
        name=left.name,
        specifier="" if left.url or right.url else _joined_specifier(left, right),
        url=left.url or right.url,
        extras=tuple(sorted({*left.extras, *right.extras})),
        marker=left.marker or right.marker,
        needs=tuple(sorted({*left.needs, *right.needs})),
        is_conda=left.is_conda and right.is_conda,
    )


def name_of_reference(url: str) -> str:
    """Return the package's name in a direct reference: from `#egg=`, or a wheel's or archive's file name; else ""."""
    try:
        parts = urlsplit(url)
    except ValueError:  # a host such as `[::`
        return ""
    fragment = dict(item.partition("=")[::2] for item in parts.fragment.split("&"))
    if fragment.get("egg"):
        return canonicalize_name(unquote(fragment["egg"]).partition("[")[0])
    file_name = PurePath(unquote(parts.path)).name
    try:
        return parse_wheel_filename(file_name)[0]
    except InvalidWheelFilename:
        pass
    try:
        return parse_sdist_filename(file_name)[0]
    except InvalidSdistFilename:
        return ""


def order_by_needs(pins: Mapping[str, Pin]) -> list[str]:
    """Return the names so that what others depend upon comes first; ties, and circles, go by name."""
    ordered: list[str] = []
    seen: set[str] = set()
    for start in sorted(pins):
        stack = [(start, False)]
        while stack:
            name, is_done = stack.pop()
            if is_done:
                ordered.append(name)
            elif name not in seen:
                seen.add(name)
                stack.append((name, True))
                stack.extend((need, False) for need in sorted(pins[name].needs, reverse=True) if need in pins)
    return ordered


def _is_exact(item: Specifier) -> bool:
    return item.operator == "===" or (item.operator == "==" and not item.version.endswith(".*"))


def _version_key(version: str) -> Version | str:
    try:
        return Version(version)
    except ValueError:
        return version


def _joined_specifier(left: Pin, right: Pin) -> str:
    joined = SpecifierSet(left.specifier) & SpecifierSet(right.specifier)
    exact = [item.version for item in joined if _is_exact(item)]
    for version in exact:
        if not joined.contains(version, prereleases=True):
            raise ValueError(f"{left.name} is asked for as {left.specifier or 'any'} and as {right.specifier or 'any'}")
    return exact_specifier(exact[0]) if exact else str(joined)
