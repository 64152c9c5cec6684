"""A stored result stands for a run only if nothing that its numbers depend on has changed: each such thing is in the key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bisect_train.core.changes import DataLink, Variant
from bisect_train.core.probe import (
    RECORDER_VERSION,
    EnvironmentSettings,
    MachineFacts,
    MetricPattern,
    ProbeSpec,
    RestartSettings,
    Rung,
    RunSettings,
    probe_key,
)

VARIANT = Variant("t" * 40, "c" * 40, ("python", "train.py"), packages=("toy==1",))
SPEC = ProbeSpec(VARIANT, Rung(20, 1))
SETTINGS = RunSettings("/usr/bin/python", environment=EnvironmentSettings(digest="wheels"))
FACTS = MachineFacts("a CPU, avx2", "python 3.11.7, torch 2.13.0, packages 0123456789ab", 2)
KEY = probe_key(SPEC, settings=SETTINGS, facts=FACTS)


def key_of(*, variant: Any = None, spec: Any = None, settings: Any = None, facts: Any = None, **more: Any) -> str:
    changed = replace(SPEC, variant=replace(VARIANT, **variant or {}), **spec or {})
    return probe_key(changed, settings=replace(SETTINGS, **settings or {}), facts=replace(FACTS, **facts or {}), **more)


OTHERS = {
    "recorder": {"recorder": str(int(RECORDER_VERSION) + 1)},
    "hardware": {"facts": {"hardware_class": "a CPU, avx512"}},
    "python": {"facts": {"interpreter": "python 3.12.1, torch 2.13.0, packages 0123456789ab"}},
    "torch": {"facts": {"interpreter": "python 3.11.7, torch 2.12.0, packages 0123456789ab"}},
    "distributions": {"facts": {"interpreter": "python 3.11.7, torch 2.13.0, packages ba9876543210"}},
    "scope": {"scope": "0123abcd"},
    "tree": {"variant": {"tree": "u" * 40}},
    "command": {"variant": {"command": ("python", "train.py", "--fast")}},
    "variables": {"variant": {"env": (("LR", "1"),)}},
    "data": {"variant": {"data": "other"}},
    "packages": {"variant": {"packages": ("toy==2",)}},
    "ranks of the variant": {"variant": {"ranks": 2}},
    "interpreter of the variant": {"variant": {"python": "/opt/python", "interpreter": "3.12"}},
    "launcher": {"variant": {"launcher": ("podman", "run", "image:1")}},
    "steps": {"spec": {"rung": Rung(21, 1)}},
    "ranks": {"spec": {"rung": Rung(20, 2)}},
    "seed": {"spec": {"seed_idx": 1}},
    "repeat": {"spec": {"repeat": 1}},
    "threads": {"settings": {"threads": 2}},
    "determinism": {"settings": {"deterministic": True}},
    "pattern": {"settings": {"patterns": (MetricPattern("loss", "x=(.*)"),)}},
    "judge": {"settings": {"judge": ("python", "judge.py")}},
    "setup": {"settings": {"setup": (("make",),)}},
    "seeds that are not shifted": {"settings": {"exempt_seeds": (7,)}},
    "closer look": {"settings": {"debug_env": (("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),)}},
    "restart": {"settings": {"restart": RestartSettings(5, ("{command}",))}},
    "origin of packages": {"settings": {"environment": EnvironmentSettings(digest="other wheels")}},
    "kind of environment": {"settings": {"environment": EnvironmentSettings("uv", digest="wheels")}},
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_key_changes_with_what_the_numbers_depend_on(change: dict[str, Any]) -> None:
    assert key_of(**change) != KEY == key_of()


@pytest.mark.parametrize(
    "change",
    [
        {"variant": {"commit": "d" * 40}},
        {"settings": {"timeout_s": 1.0}},
        {"settings": {"links": (DataLink("/elsewhere", "data"),)}},
        {"facts": {"slots": 9}},
    ],
    ids=str,
)
def test_key_stays_with_what_they_do_not_depend_on(change: dict[str, Any]) -> None:
    assert key_of(**change) == KEY
