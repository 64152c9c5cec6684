"""Keeps dynamo out of the recorder's files: a hook that runs inside a compiled program is not compiled itself."""

from __future__ import annotations

import os
from typing import Any

MODULES = ("torch._dynamo.trace_rules", "torch._dynamo.skipfiles")  # the second: before torch 2.3
# These stand in torch's place inside what a program compiles, so dynamo must be able to inline them.
INLINED = ("traced", "root_module", "collective_watch", "cuda_as_cpu")


def leave_out(session: Any, rules: Any) -> None:
    """Add the files to those that dynamo skips; called once one of its MODULES has been imported."""
    if not hasattr(rules, "SKIP_DIRS"):
        return
    folder = os.path.dirname(os.path.abspath(__file__))
    paths = {name[: -len(".py")]: os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".py")}
    del paths["__init__"]
    inlined = getattr(rules, "get_mod_inlinelist", None)
    for name in INLINED:
        if inlined is None:  # before torch 2.3 a file that is skipped cannot be inlined
            del paths[name]
        else:
            inlined().add(paths[name])
    rules.SKIP_DIRS.extend(paths.values())
    rules._recompile_re()
