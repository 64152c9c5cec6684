"""Whether the packages of an overlay go together, and whether python really takes them from there.

They are installed without their dependencies, so what they declare is compared afterwards with what is there. A need
that nothing meets at all is left to the program: it says which module it misses.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from bisect_train_workers.data_links import CannotStartError
from bisect_train_workers.environment import clean_environment
from bisect_train_workers.installed import Inherited, Installed

_LIMIT_S = 120.0
_MAX_SHOWN = 3
_FIND = """
import importlib.util, json, os, sys
folder, names = sys.argv[1], json.loads(sys.argv[2])
found = {}
for name in names:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        continue
    places = list(spec.submodule_search_locations or []) + [spec.origin or ""] if spec else []
    if places and not any(os.path.realpath(place).startswith(folder + os.sep) for place in places if place):
        found[name] = spec.origin or places[0]
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Laid(Installed):
    """A distribution in an overlay.

    Attributes:
        modules: names of the modules and packages that it brings.
        content: digest of the files that it brings.
    """

    modules: tuple[str, ...] = ()
    content: str = ""


def read_laid(site: Path) -> list[Laid]:
    """Return the distributions in an overlay's folder, by name."""
    found = [_laid_of(item) for item in importlib.metadata.distributions(path=[str(site)])]
    return sorted(found, key=lambda item: item.name)


def content_of(laid: Sequence[Laid]) -> list[list[str]]:
    """Return (name, version, digest of the files) of each distribution: what an overlay *is*, wherever it lies."""
    return [[item.name, item.version, item.content] for item in laid]


def refuse_conflicts(laid: Sequence[Laid], inherited: Inherited) -> None:
    """Raise CannotStartError where a laid package needs another version of a laid or an inherited one."""
    present = {**inherited.packages, **{item.name: item for item in laid}}
    violated = [text for item in laid for text in _violations(item, present, inherited.markers).values()]
    if violated:
        raise CannotStartError(f"the packages do not go together: {_few(violated)}")


def find_broken(laid: Sequence[Laid], inherited: Inherited) -> list[str]:
    """Return what inherited packages need and had, and that the laid ones now break; a warning, as pip would give it."""
    names = {item.name for item in laid}
    present = {**inherited.packages, **{item.name: item for item in laid}}
    others = [item for item in inherited.packages.values() if item.name not in names]
    broken = []
    for item in others:
        before = _violations(item, inherited.packages, inherited.markers)
        broken += [text for need, text in _violations(item, present, inherited.markers).items() if need not in before]
    return [f"packages that do not go together: {_few(broken)}"] if broken else []


def refuse_shadowed(python: str, site: Path, laid: Sequence[Laid]) -> None:
    """Raise CannotStartError where python imports a laid package's module from somewhere else all the same."""
    owners = {name: item for item in laid for name in item.modules}
    env = {name: value for name, value in clean_environment(os.environ).items() if name != "PYTHONHOME"}
    env.update(PYTHONPATH=str(site), PYTHONDONTWRITEBYTECODE="1")
    command = [python, "-c", _FIND, os.path.realpath(site), json.dumps(sorted(owners))]
    try:
        done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=_LIMIT_S, check=True)
        found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise CannotStartError(f"{python} does not start with the packages laid over: {said[-1] if said else error}") from None
    if found:
        name, place = min(found.items())
        owner = owners[name]
        raise CannotStartError(
            f"{owner.name} {owner.version} is laid over, but python imports {name} from {place}: an editable install that"
            f" puts itself first; uninstall it (`{python} -m pip uninstall {owner.name}`) or use another interpreter"
        )


def _laid_of(item: importlib.metadata.Distribution) -> Laid:
    return Laid(
        name=canonicalize_name(item.metadata["Name"]),
        version=str(item.version),
        requires=tuple(item.requires or ()),
        modules=tuple(sorted(_modules_of(item))),
        content=_content_of(item),
    )


def _modules_of(item: importlib.metadata.Distribution) -> Iterator[str]:
    """Yield the top-level modules that a distribution brings, without namespaces that it shares."""
    seen = set()
    for path in item.files or ():
        first, *rest = path.parts
        if rest == ["__init__.py"] and first.isidentifier():
            seen.add(first)
        elif not rest and path.suffix in (".py", ".so"):
            name = first.partition(".")[0]
            seen |= {name} if name.isidentifier() else set()
    yield from seen


def _content_of(item: importlib.metadata.Distribution) -> str:
    """Return the digest of a distribution's files: their names and recorded hashes, without what depends on the place."""
    whole = hashlib.sha256()
    for path in sorted(item.files or (), key=str):
        is_local = path.suffix == ".pyc" or path.parts[0] in ("..", "bin")
        if is_local or (
            path.parts[0].endswith(".dist-info") and path.name in ("RECORD", "direct_url.json", "INSTALLER", "REQUESTED")
        ):
            continue
        whole.update(f"{path}\0{path.hash.value if path.hash else ''}\n".encode())
    return whole.hexdigest()[:16]


def _violations(item: Installed, present: Mapping[str, Installed], markers: Mapping[str, str]) -> dict[str, str]:
    """Return `Requires-Dist` line -> what is wrong, for the needs that what is present does not meet."""
    found = {}
    for text in item.requires:
        try:
            need = Requirement(text)
            is_asked = need.marker is None or need.marker.evaluate({**markers, "extra": ""})
        except (InvalidRequirement, UndefinedEnvironmentName):
            continue
        other = present.get(canonicalize_name(need.name))
        if is_asked and other and not need.url and not _meets(need, other.version):
            asked = f"{item.name} {item.version} needs {other.name}{need.specifier}"
            found[text] = f"{asked}, the environment has {other.name} {other.version}"
    return found


def _meets(need: Requirement, version: str) -> bool:
    """Return whether a version is one that is asked for; one that is no version by PEP 440 cannot be compared."""
    try:
        return need.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True


def _few(texts: Sequence[str]) -> str:
    more = f" (+{len(texts) - _MAX_SHOWN} more)" if len(texts) > _MAX_SHOWN else ""
    return "; ".join(texts[:_MAX_SHOWN]) + more
