"""Baselines as YAML files in the repository: `.bisect-train/baselines/NAME.yaml`, readable, diffable, to be committed."""

from __future__ import annotations

import re
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bisect_train.baseline.values import Baseline, Intended, Saved
from bisect_train.core.errors import InputError, MachineError
from bisect_train.core.golden import Golden, GoldenRun
from bisect_train.core.yaml_text import load_yaml_text

BASELINES = Path(".bisect-train/baselines")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HEAD = """\
# A baseline of bisect-train: what a good version showed, so that later ones can be compared with it.
# Written by `bisect-train baseline save`; `bisect-train baseline renew {name}` takes another version after an intended change.
"""
_Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _RunWire(_Wire):
    seed: Annotated[int, Field(ge=0)]
    value: float
    bits: str = ""


class _PlatformWire(_Wire):
    hardware: str
    interpreter: str
    recorder: str
    rung: str
    variant: str
    measure: str
    repeats_bitwise: bool
    runs: Annotated[list[_RunWire], Field(min_length=1)]


class _SavedWire(_Wire):
    commit: _Commit
    date: str
    reason: str = ""


class _IntendedWire(_Wire):
    commit: _Commit
    reason: str = ""


class _MetricWire(_Wire):
    name: str
    reduce: str


class _BaselineWire(_Wire):
    schema_: Annotated[Literal[1], Field(alias="schema")]
    saved: _SavedWire
    command: list[str]
    metric: _MetricWire
    expect: list[_IntendedWire] = []
    history: list[_SavedWire] = []
    platforms: Annotated[list[_PlatformWire], Field(min_length=1)]


def path_of(root: Path, name: str) -> Path:
    """Return where a baseline of this name lies. Raises InputError: no such name can be."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is no name of a baseline",
            hint="take letters, digits, `.`, `_` and `-`, beginning with a letter or digit",
        )
    return root / BASELINES / f"{name}.yaml"


def list_baselines(root: Path) -> list[str]:
    """Return the names of the baselines of a repository, sorted."""
    return sorted(path.stem for path in (root / BASELINES).glob("*.yaml") if _NAME.fullmatch(path.stem))


def read_baseline(root: Path, name: str) -> Baseline:
    """Return a baseline.

    Raises:
        InputError: there is none of this name, or its file cannot be read; the message names file and key.
    """
    path = path_of(root, name)
    try:
        data = load_yaml_text(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = ", ".join(list_baselines(root)) or "none"
        raise InputError(f"there is no baseline {name!r}: {path} does not exist", hint=f"baselines here: {known}") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{path} cannot be read: {str(error).splitlines()[0]}", hint="save it again, or repair it") from None
    try:
        wire = _BaselineWire.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise InputError(f"{path}: {where}: {first['msg']}", hint="save it again, or repair it") from None
    return _of_wire(name, wire)


def _of_wire(name: str, wire: _BaselineWire) -> Baseline:
    golden = tuple(
        Golden(
            name,
            item.variant,
            item.rung,
            item.measure,
            item.hardware,
            item.interpreter,
            item.recorder,
            item.repeats_bitwise,
            tuple(GoldenRun(run.seed, run.value, run.bits) for run in item.runs),
        )
        for item in wire.platforms
    )
    return Baseline(
        name,
        Saved(**wire.saved.model_dump()),
        tuple(wire.command),
        (wire.metric.name, wire.metric.reduce),
        golden,
        tuple(Saved(**item.model_dump()) for item in wire.history),
        tuple(Intended(**item.model_dump()) for item in wire.expect),
    )


def write_baseline(root: Path, baseline: Baseline) -> Path:
    """Write a baseline, beside and renamed, so that no half of it is ever seen; return its file.

    Raises:
        MachineError: it cannot be written.
    """
    path = path_of(root, baseline.name)
    text = _HEAD.format(name=baseline.name) + yaml.safe_dump(
        _to_plain(baseline), sort_keys=False, width=120, allow_unicode=True
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # a name that nobody can have put there, so that no link of a cloned repository is written through
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".new-", encoding="utf-8", delete=False) as beside:
            beside.write(text)
        Path(beside.name).chmod(0o644)
        Path(beside.name).replace(path)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}", hint="is the folder writable, the disk full?") from None
    return path


def _to_plain(baseline: Baseline) -> dict[str, object]:
    return {
        "schema": 1,
        "saved": asdict(baseline.saved),
        "command": list(baseline.command),
        "metric": {"name": baseline.metric[0], "reduce": baseline.metric[1]},
        "expect": [asdict(item) for item in baseline.intended],
        "history": [asdict(item) for item in baseline.history],
        "platforms": [
            {
                "hardware": item.hardware_class,
                "interpreter": item.interpreter,
                "recorder": item.recorder,
                "rung": item.rung,
                "variant": item.variant,
                "measure": item.measure,
                "repeats_bitwise": item.repeats,
                "runs": [{"seed": run.seed_idx, "value": run.value, "bits": run.digest} for run in item.runs],
            }
            for item in baseline.golden
        ],
    }
