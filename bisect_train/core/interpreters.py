"""How code of ours is given to a python: with no module of the folder that a person happens to stand in.

`python -c` and `python -m` look for modules there first, so a `json.py` in a repository would be run by a command that only
asks something. (Python's own switch for it, `-P`, came with 3.11.)
"""

from __future__ import annotations

ALONE = "import sys; sys.path[:] = [item for item in sys.path if item]\n"
"""The first line of code for `python -c`."""

_AS_MODULE = f"{ALONE}import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"


def module_command(python: str, module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that does what `python -m MODULE ARGUMENTS` does, without the working folder among the modules."""
    return (python, "-c", _AS_MODULE, module, *arguments)
