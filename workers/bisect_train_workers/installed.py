"""What the program's interpreter has installed, as it says itself: versions, what they need, and its markers."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bisect_train.core.changes import digest_of
from bisect_train_workers.data_links import CannotStartError
from bisect_train_workers.environment import clean_environment

_LIMIT_S = 60.0
_ASK = """
import importlib.metadata as metadata, json, os, platform, re, sys, sysconfig
def implementation():
    info = sys.implementation.version
    text = "%d.%d.%d" % info[:3]
    return text if info.releaselevel == "final" else text + info.releaselevel[0] + str(info.serial)
markers = {
    "implementation_name": sys.implementation.name, "implementation_version": implementation(), "os_name": os.name,
    "platform_machine": platform.machine(), "platform_release": platform.release(), "platform_system": platform.system(),
    "platform_version": platform.version(), "platform_python_implementation": platform.python_implementation(),
    "python_full_version": platform.python_version(), "python_version": ".".join(platform.python_version_tuple()[:2]),
    "sys_platform": sys.platform,
}
found = {}
for item in metadata.distributions():
    name = re.sub(r"[-_.]+", "-", item.metadata["Name"] or "").lower()
    if name and name not in found:
        found[name] = [str(item.version), item.requires or []]
folders = [entry for entry in sys.path if os.path.isdir(entry)]
abi = str(sysconfig.get_config_var("SOABI"))
print(json.dumps({"markers": markers, "found": found, "folders": folders, "abi": abi, "platform": sysconfig.get_platform()}))
"""


@dataclass(frozen=True, slots=True)
class Installed:
    """A distribution: canonical name, version, and its `Requires-Dist` lines."""

    name: str
    version: str
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inherited:
    """An interpreter's own environment.

    Attributes:
        interpreter: version, ABI and platform.
        identity: digest of `interpreter` and the installed versions, 16 hex digits.
        markers: values of environment markers.
        packages: by canonical name.
    """

    interpreter: str
    identity: str
    markers: Mapping[str, str]
    packages: Mapping[str, Installed]
    folders: tuple[tuple[str, int], ...] = field(default=(), compare=False)

    def is_current(self) -> bool:
        """Return whether nothing was installed or removed since; an installation touches the folder."""
        return all(_changed_ns(folder) == changed_ns for folder, changed_ns in self.folders)


_known: dict[str, Inherited] = {}


def find_inherited(python: str) -> Inherited:
    """Return an interpreter's environment; asked again only after something was installed.

    Raises:
        CannotStartError: the interpreter cannot be asked.
    """
    known = _known.get(python)
    if known is None or not known.is_current():
        known = _known[python] = _ask(python)
    return known


def _ask(python: str) -> Inherited:
    env = {name: value for name, value in clean_environment(os.environ).items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(
            [python, "-c", _ASK], env=env, cwd="/", capture_output=True, text=True, timeout=_LIMIT_S, check=True
        )
        seen = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise CannotStartError(f"the interpreter {python} cannot be used: {said[-1] if said else error}") from None
    packages = {name: Installed(name, version, tuple(requires)) for name, (version, requires) in seen["found"].items()}
    versions = sorted(f"{item.name}=={item.version}" for item in packages.values() if not item.name.startswith("bisect-train"))
    markers = seen["markers"]
    interpreter = f"{markers['python_full_version']} {seen['abi']} {seen['platform']}"
    return Inherited(
        interpreter,
        digest_of([interpreter, versions]),
        markers,
        packages,
        tuple((folder, _changed_ns(folder)) for folder in seen["folders"]),
    )


def _changed_ns(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return -1
