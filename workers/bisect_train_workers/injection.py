"""Put the recorder beside a probe: a copy of its folder with the settings of this probe in it.

The copy is the only folder of ours on the program's path. Its code is not imported here, except for the pure functions
that name a failure, which must give the same text for a failure that only the log shows.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bisect_train.core.probe import ProbeSpec, RunSettings
from bisect_train_workers.command import has_placeholder
from bisect_train_workers.environment import ProbeFolders

RECORDER_FOLDER = Path(__file__).resolve().parent / "recorder"
CHECKSUM_EVERY = 10
"""Steps between two parameter hashes where not every step is hashed (DESIGN.md, section 3)."""


def inject_recorder(
    spec: ProbeSpec,
    settings: RunSettings,
    folders: ProbeFolders,
    *,
    source: Path = RECORDER_FOLDER,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Copy the recorder into the probe's folder and write its settings; `more` of them win over the usual ones."""
    ignored = shutil.ignore_patterns("__pycache__", "settings.json")
    shutil.copytree(source, folders.recorder, ignore=ignored, dirs_exist_ok=True)
    folders.records.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**recorder_settings(spec, settings, folders), **more})
    (folders.recorder / "settings.json").write_text(text, encoding="utf-8")


def recorder_settings(spec: ProbeSpec, settings: RunSettings, folders: ProbeFolders) -> dict[str, Any]:
    """Return what the recorder is told; a program that gets `{seed}` seeds itself, so nothing is shifted then."""
    is_seeded = has_placeholder(spec.variant.command, "seed")
    return {
        "out": str(folders.records),
        "steps": spec.rung.steps,
        "seed_idx": 0 if is_seeded else spec.seed_idx,
        "exempt_seeds": list(settings.exempt_seeds),
        "checksum_every": CHECKSUM_EVERY,
        "every_step": settings.every_step,
        "triage": settings.triage or spec.ranks > 1,
        "anomaly": settings.anomaly,
        "profile": settings.profile,
        "root": str(folders.checkout),
        "redirect_from": settings.redirect_from or None,
        "base_seed": 0,
        "deterministic": settings.deterministic,
        "stubs": list(settings.stubs),
        "shims": list(settings.shims),
        "step_function": settings.step_function,
        "die_with_parent": True,
    }


def normalize_message(message: str) -> str:
    """Return an exception's message without paths, addresses, ranks and numbers, as the recorder would."""
    return str(_signature_module().normalize_message(message))


def failure_signature(exc_type: str, normalized: str, functions: Sequence[str]) -> str:
    """Return the signature that the recorder gives such a failure."""
    return str(_signature_module().failure_signature(exc_type, normalized, functions))


@functools.cache
def _signature_module() -> Any:
    path = RECORDER_FOLDER / "_bisect_train_recorder" / "signature.py"
    found = importlib.util.spec_from_file_location("_bisect_train_signature", path)
    assert found is not None and found.loader is not None, path
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
