"""Lock files of uv, poetry, pipenv, conda and PEP 751 (`pylock.toml`), project files and conda environments.

What a lock file keeps for development or for extras that nobody asked for is left out: the training run does not see
it. The project itself and packages of the same repository are left out too, since each checkout brings them along.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from bisect_train.changes.packages.pins import Pin, exact_specifier, join_pins
from bisect_train.changes.packages.requirements import pins_of_list
from bisect_train.changes.packages.shapes import EACH, check_shape
from bisect_train.changes.packages.sources import Source
from bisect_train.core.yaml_text import load_yaml_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Table = dict[str, Any]

_UV_SHAPE = {
    "source": dict,
    "resolution-markers": [str],
    "dependencies": [{"extra": [str], "name": str}],
    "optional-dependencies": {EACH: [{"extra": [str], "name": str}]},
}
_POETRY_SHAPE = {"dependencies": dict, "source": dict, "groups": [str], "markers": (str, dict)}
_PYLOCK_SHAPE = {"dependencies": [{"name": str}], "vcs": dict, "directory": dict, "archive": dict}
_CONDA_SHAPE = {"dependencies": {EACH: (str, dict)}}
_CONDA_SPEC = re.compile(r"(?:[^\s:]+::)?([A-Za-z0-9_.-]+)\s*(?:\[.*\])?\s*([=<>!~ ].*)?")
_CONDA_SYSTEMS = {"linux": "linux", "darwin": "osx", "win32": "win"}
_CONDA_MACHINES = {"x86_64": "64", "AMD64": "64", "aarch64": "aarch64", "arm64": "arm64"}


def read_pyproject(source: Source, text: str) -> dict[str, Pin]:
    """Return the pins of `[project] dependencies`; optional ones are left out."""
    project = _load(source, text, "TOML").get("project", {})
    check_shape(source, project, {"dynamic": [str]}, place="[project]")
    if "dependencies" not in project:
        rule = "it has no [project] dependencies"
        hint = "compare its lock file or a requirements file; `pip freeze > FILE` writes one"
        if "dependencies" in project.get("dynamic", []):
            rule = "its dependencies are dynamic: its build decides them"
        raise source.refuse("[project]", rule, hint=hint)
    return pins_of_list(
        source, _texts(source, project["dependencies"], "[project] dependencies"), place="[project] dependencies"
    )


def read_uv_lock(source: Source, text: str) -> dict[str, Pin]:
    """Return the packages of a uv lock file that the project needs on this machine."""
    entries = _tables(source, _load(source, text, "TOML"), "package", _UV_SHAPE)
    kept = [entry for entry in entries if _is_for_here(source, entry)]
    roots = [entry for entry in kept if {"virtual", "editable"} & set(entry.get("source", {}))]
    return _joined(source, (_uv_pin(source, entry) for entry in (_uv_reached(source, kept, roots) if roots else kept)))


def _is_for_here(source: Source, entry: Table) -> bool:
    """Return whether an entry of a forked resolution is the one for this machine."""
    markers = entry.get("resolution-markers", [])
    return not markers or any(source.holds(marker) for marker in markers)


def _uv_reached(source: Source, entries: Sequence[Table], roots: Sequence[Table]) -> list[Table]:
    """Return the entries that the roots lead to, by dependencies whose markers hold."""
    reached: dict[tuple[str, str], Table] = {}
    todo: list[tuple[Table, tuple[str, ...]]] = [(entry, ()) for entry in roots]
    seen: set[tuple[str, str, tuple[str, ...]]] = set()
    while todo:
        entry, extras = todo.pop()
        key = (str(entry["name"]), str(entry.get("version", "")))
        if (*key, extras) in seen:
            continue
        seen.add((*key, extras))
        reached[key] = entry
        asked = [*entry.get("dependencies", [])]
        asked += [item for extra in extras for item in entry.get("optional-dependencies", {}).get(extra, [])]
        for need in asked:
            if source.holds(str(need.get("marker", "")), line=f"package {key[0]}"):
                todo += [(found, tuple(need.get("extra", ()))) for found in _uv_named(entries, need)]
    return list(reached.values())


def _uv_named(entries: Sequence[Table], need: Table) -> list[Table]:
    found = [entry for entry in entries if entry["name"] == need.get("name")]
    return [entry for entry in found if "version" not in need or entry.get("version") == need["version"]]


def _uv_pin(source: Source, entry: Table) -> Pin | None:
    origin: Table = entry.get("source", {})
    needs = tuple(canonicalize_name(item["name"]) for item in entry.get("dependencies", []) if "name" in item)
    if "git" in origin:
        return _pin(source, entry, needs=needs, url=_uv_git_url(str(origin["git"])))
    if "url" in origin:
        return _pin(source, entry, needs=needs, url=str(origin["url"]))
    local = next((str(origin[key]) for key in ("path", "directory", "editable", "virtual") if key in origin), "")
    if local:
        return None if "virtual" in origin or source.is_inside(local) else _local_pin(source, entry, local, needs)
    return _pin(source, entry, needs=needs)


def _uv_git_url(text: str) -> str:
    """Return pip's form of uv's `https://host/x?subdirectory=a&rev=main#COMMIT`."""
    try:
        parts = urlsplit(text)
    except ValueError:  # no address; whoever installs it says so
        return f"git+{text}"
    folder = parse_qs(parts.query).get("subdirectory", [""])[0]
    plain = parts._replace(query="", fragment="").geturl()
    return f"git+{plain}@{parts.fragment}" + (f"#subdirectory={folder}" if folder else "")


def read_poetry_lock(source: Source, text: str) -> dict[str, Pin]:
    """Return the packages of a poetry lock file that belong to the main group and are not optional."""
    entries = _tables(source, _load(source, text, "TOML"), "package", _POETRY_SHAPE)
    return _joined(source, (_poetry_pin(source, entry) for entry in entries if _is_main(source, entry)))


def _is_main(source: Source, entry: Table) -> bool:
    groups = entry.get("groups", [entry.get("category", "main")])
    markers = entry.get("markers", "")
    marker = markers.get("main", "") if isinstance(markers, dict) else markers
    is_wanted = "main" in groups and not entry.get("optional", False)
    return is_wanted and source.holds(str(marker), line=f"package {entry['name']}")


def _poetry_pin(source: Source, entry: Table) -> Pin | None:
    needs = tuple(canonicalize_name(name) for name in entry.get("dependencies", {}))
    origin: Table = entry.get("source", {})
    url = str(origin.get("url", ""))
    if origin.get("type") == "git":
        folder = f"#subdirectory={origin['subdirectory']}" if "subdirectory" in origin else ""
        return _pin(source, entry, needs=needs, url=f"git+{url}@{origin.get('resolved_reference', '')}{folder}")
    if origin.get("type") == "url":
        return _pin(source, entry, needs=needs, url=url)
    if origin.get("type") in ("directory", "file"):
        return None if source.is_inside(url) else _local_pin(source, entry, url, needs)
    return _pin(source, entry, needs=needs)


def read_pipfile_lock(source: Source, text: str) -> dict[str, Pin]:
    """Return the packages of the section `default` of a Pipfile.lock."""
    section = _load(source, text, "JSON").get("default", {})
    return _joined(source, (_pipfile_pin(source, name, entry) for name, entry in _items(source, section, "default")))


def _pipfile_pin(source: Source, name: str, entry: Any) -> Pin | None:
    place = f"package {name}"
    if isinstance(entry, str) or not source.holds(str(entry.get("markers", "")), line=place):
        return source.pin_of_text(f"{name}{'' if entry == '*' else entry}", line=place) if isinstance(entry, str) else None
    check_shape(source, entry, {"extras": [str]}, place=place)
    extras = tuple(sorted(canonicalize_name(item) for item in entry.get("extras", [])))
    version = str(entry.get("version", ""))
    pin = Pin(canonicalize_name(name), "" if version == "*" else _specifier(source, version, place), extras=extras)
    if "git" in entry:
        return replace(pin, specifier="", url=f"git+{entry['git']}@{entry.get('ref', '')}")
    local = str(entry.get("path", entry.get("file", "")))
    if local:
        return None if source.is_inside(local) else replace(pin, specifier="", url=source.absolute_reference(local))
    return pin


def read_pylock(source: Source, text: str) -> dict[str, Pin]:
    """Return the packages of a lock file of PEP 751 whose markers hold."""
    entries = _tables(source, _load(source, text, "TOML"), "packages", _PYLOCK_SHAPE)
    kept = [entry for entry in entries if source.holds(str(entry.get("marker", "")), line=f"package {entry['name']}")]
    return _joined(source, (_pylock_pin(source, entry) for entry in kept))


def _pylock_pin(source: Source, entry: Table) -> Pin | None:
    needs = tuple(canonicalize_name(str(item["name"])) for item in entry.get("dependencies", []) if "name" in item)
    vcs, folder, archive = (entry.get(key, {}) for key in ("vcs", "directory", "archive"))
    if vcs:
        place = vcs.get("url", vcs.get("path", ""))
        return _pin(source, entry, needs=needs, url=f"{vcs.get('type', 'git')}+{place}@{vcs.get('commit-id', '')}")
    if folder:
        local = str(folder.get("path", ""))
        return None if source.is_inside(local) else _local_pin(source, entry, local, needs)
    if archive:
        return _local_pin(source, entry, str(archive.get("url", archive.get("path", ""))), needs)
    return _pin(source, entry, needs=needs)


def read_conda_environment(source: Source, text: str) -> dict[str, Pin]:
    """Return the pins of a conda environment file, its `pip:` list included (which wins where both name a package)."""
    listed = _load(source, text, "YAML").get("dependencies")
    if not isinstance(listed, list):
        raise source.refuse("dependencies", "a conda environment lists its packages under `dependencies:`")
    found = _joined(source, (_conda_pin(source, item) for item in listed if isinstance(item, str)))
    for item in listed:
        if isinstance(item, dict) and isinstance(item.get("pip"), list):
            found |= pins_of_list(source, _texts(source, item["pip"], "the pip list"), place="the pip list")
        elif not isinstance(item, str):
            raise source.refuse(str(item), "an entry of `dependencies:` is a text or a `pip:` list")
    return found


def _conda_pin(source: Source, text: str) -> Pin:
    matched = _CONDA_SPEC.fullmatch(text.strip())
    if not matched:
        raise source.refuse(text, "no conda package", hint="write NAME=VERSION")
    name, asked = matched[1].lower(), (matched[2] or "").strip()
    return Pin(canonicalize_name(name), _conda_specifier(source, text, asked), is_conda=True)


def _conda_specifier(source: Source, text: str, asked: str) -> str:
    """Return conda's `=1.26` (any 1.26), `=1.26.4` and `=1.26.4=build` (one release) or `>=1,<2` as a specifier."""
    if asked and asked[0].isalnum():
        version, _, build = asked.replace(" ", "=", 1).partition("=")
        asked = f"={version}" + (f"={build}" if build else "")
    if not asked.startswith("=") or asked.startswith("=="):
        exact = asked.removeprefix("==").partition("=")[0].strip()
        asked = exact_specifier(exact) if asked.startswith("==") and "*" not in exact else asked
        return _specifier(source, asked, text)
    version, _, build = asked[1:].strip().partition("=")
    if version.endswith("*"):
        return _specifier(source, f"=={version.rstrip('.*')}.*", text)
    is_one = bool(build) or version.count(".") >= 2 or not re.fullmatch(r"[0-9.]+", version)
    return _specifier(source, exact_specifier(version) if is_one else f"=={version}.*", text)


def read_conda_lock(source: Source, text: str) -> dict[str, Pin]:
    """Return the packages of a conda-lock file for this machine's platform, of the main category."""
    document = _load(source, text, "YAML")
    platform = conda_platform(source)
    entries = _tables(source, document, "package", _CONDA_SHAPE)
    listed = sorted({str(entry.get("platform")) for entry in entries})
    if entries and platform not in listed:
        rule = f"it locks nothing for this machine, only for {', '.join(listed)}"
        raise source.refuse(platform, rule, hint=f"lock for it: conda-lock --platform {platform}")
    kept = [entry for entry in entries if entry.get("platform") == platform and entry.get("category", "main") == "main"]
    return _joined(source, (_conda_lock_pin(source, entry) for entry in kept))


def _conda_lock_pin(source: Source, entry: Table) -> Pin | None:
    needs = tuple(canonicalize_name(name) for name in entry.get("dependencies", {}))
    pin = _pin(source, entry, needs=needs)
    return replace(pin, is_conda=entry.get("manager") == "conda")


def conda_platform(source: Source) -> str:
    """Return conda's name of the machine that the markers are evaluated for, such as `linux-64`."""
    from packaging.markers import default_environment

    facts = {**default_environment(), **source.environment}
    system, machine = str(facts["sys_platform"]), str(facts["platform_machine"])
    return f"{_CONDA_SYSTEMS.get(system, system)}-{_CONDA_MACHINES.get(machine, machine)}"


def _load(source: Source, text: str, kind: str) -> Table:
    loaders = {"TOML": tomllib.loads, "JSON": json.loads, "YAML": load_yaml_text}
    try:
        values = loaders[kind](text)  # type: ignore[operator]
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise source.refuse(error.problem or "", f"this is not valid {kind}", line=line) from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise source.refuse(" ".join(str(error).split()), f"this is not valid {kind}", line=_line_of(error)) from None
    if not isinstance(values, dict):
        raise source.refuse(type(values).__name__, "the top level must be a mapping")
    return values


def _line_of(error: Exception) -> int:
    found = re.search(r"line (\d+)", str(error))
    return int(found[1]) if found else 0


def _tables(source: Source, document: Table, key: str, shape: Table) -> list[Table]:
    """Return the entries of a list of packages; each has a name and a shape."""
    entries = document.get(key, [])
    if not isinstance(entries, list):
        raise source.refuse(type(entries).__name__, f"`{key}` must be a list of packages")
    for idx, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise source.refuse(str(entry), "a package needs a name", line=f"{key} {idx}", hint="write the lock file anew")
        check_shape(source, entry, shape, place=f"package {entry['name']}")
    return entries


def _items(source: Source, section: Any, key: str) -> list[tuple[str, Any]]:
    if not isinstance(section, Mapping) or not all(isinstance(item, (str, dict)) for item in section.values()):
        raise source.refuse(key, "it must map names to versions or tables", hint="write the lock file anew")
    return list(section.items())


def _texts(source: Source, values: Any, place: str) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(item, str) for item in values):
        raise source.refuse(str(values), "it must be a list of requirements", line=place)
    return values


def _pin(source: Source, entry: Table, *, needs: tuple[str, ...], url: str = "") -> Pin:
    name = canonicalize_name(str(entry["name"]))
    version = entry.get("version")
    if url:
        return Pin(name, url=url, needs=needs)
    if not isinstance(version, str) or not version:
        raise source.refuse(str(version), "it has no version", line=f"package {name}", hint="write the lock file anew")
    return Pin(name, _specifier(source, exact_specifier(version), f"package {name}"), needs=needs)


def _local_pin(source: Source, entry: Table, place: str, needs: tuple[str, ...]) -> Pin:
    return _pin(source, entry, needs=needs, url=source.absolute_reference(place))


def _specifier(source: Source, text: str, place: str) -> str:
    try:
        return str(SpecifierSet(text))
    except ValueError:  # InvalidSpecifier, or a version of thousands of digits
        raise source.refuse(text, "no version specifier", line=place) from None


def _joined(source: Source, pins: Iterator[Pin | None]) -> dict[str, Pin]:
    found: dict[str, Pin] = {}
    for pin in pins:
        if pin is None:
            continue
        try:
            found[pin.name] = join_pins(found[pin.name], pin) if pin.name in found else pin
        except ValueError as error:
            raise source.refuse(pin.name, str(error), hint="write the lock file anew") from None
    return found
