"""What a release must fit: the tags and the version of the interpreter that will run it."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import packaging
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, parse_tag, sys_tags

from bisect_train.core.errors import MachineError

_LIMIT_S = 60.0
_ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from packaging.tags import sys_tags
print(json.dumps(["%d.%d.%d" % sys.version_info[:3], [str(tag) for tag in sys_tags()]]))
"""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter, as far as releases are chosen by it.

    Attributes:
        version: such as `3.11.4`.
        tags: the wheels' tags that it takes.
    """

    version: str
    tags: frozenset[Tag]

    def takes(self, tags: frozenset[Tag]) -> bool:
        """Return whether it can use a wheel with these tags."""
        return not self.tags.isdisjoint(tags)

    def is_allowed(self, requires_python: str | None) -> bool:
        """Return whether a release's `Requires-Python` allows it; an unreadable one does, as for pip."""
        try:
            return SpecifierSet(requires_python or "").contains(self.version, prereleases=True)
        except InvalidSpecifier:
            return True


@functools.cache
def find_interpreter(python: str = "") -> Interpreter:
    """Return the facts of an interpreter, this process's own for "".

    Raises:
        MachineError: it cannot be started.
    """
    if not python or python == sys.executable:
        return Interpreter("{}.{}.{}".format(*sys.version_info), frozenset(sys_tags()))
    library = str(Path(packaging.__file__).parents[1])
    try:
        done = subprocess.run([python, "-I", "-c", _ASK, library], capture_output=True, text=True, timeout=_LIMIT_S, check=True)
        version, tags = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        message = f"the interpreter {python} cannot be asked which wheels it takes: {said[-1] if said else error}"
        raise MachineError(message, hint="give an interpreter that works with --python") from None
    return Interpreter(version, frozenset(tag for text in tags for tag in parse_tag(text)))
