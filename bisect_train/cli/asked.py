"""The values that the shared options of several commands are gathered into."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Asked:
    """What was given on the command line; None or () where nothing was.

    Attributes:
        is_single: whether one variant is asked about: both ends are the same, and the options have no `good-` or `bad-`.
    """

    command: tuple[str, ...] = ()
    repo: Path = Path()
    recipe: Path | None = None
    config: str | None = None
    steps: Any = None
    ranks: int | None = None
    gpus: float | None = None
    seeds: int | None = None
    metric: str | None = None
    min_effect: float | None = None
    criterion: str = "auto"
    symptom: str = ""
    judge: str | None = None
    any_change: bool = False
    parallel: int | None = None
    address: str = ""
    confidence: float = 0.99
    reuse: bool = True
    warm: bool = False
    prune: bool = True
    early: bool = False
    max_probes: int | None = None
    budget_gpu_hours: float | None = None
    within: float | None = None
    second_look: bool = True
    timeout: float | None = None
    python: str | None = None
    deterministic: bool = False
    shim: tuple[str, ...] = ()
    good_config: Path | None = None
    bad_config: Path | None = None
    first_parent: bool = True
    descend: bool = True
    path: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    prior: tuple[str, ...] = ()
    skip_file: Path | None = None
    fixup: tuple[Path, ...] = ()
    keep: bool = False
    good_env: tuple[Path, ...] = ()
    bad_env: tuple[Path, ...] = ()
    good_data: tuple[str, ...] = ()
    bad_data: tuple[str, ...] = ()
    bad_command: str | None = None
    bad_ranks: int | None = None
    bad_python: str | None = None
    good_hydra: str | None = None
    bad_hydra: str | None = None
    good_image: str = ""
    bad_image: str = ""
    hold_config: str = "travel"
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    expect: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    index_url: str = ""
    package_repo: tuple[str, ...] = ()
    is_single: bool = False

    def option(self, end: str, name: str) -> str:
        """Return the name of an option about one end, `--good-data`; it is `--data` where one variant is asked about."""
        return f"--{name}" if self.is_single else f"--{end}-{name}"


@dataclass(frozen=True, slots=True)
class Output:
    """Where results go: `--json`, `--out`, `--quiet`, `--no-color`, `--markdown` ("-" for stdout), `--tell`."""

    json: Path | None = None
    out: Path | None = None
    quiet: bool = False
    no_color: bool = False
    markdown: str | None = None
    tell: tuple[str, ...] = ()


def split_options(values: dict[str, Any]) -> tuple[Asked, Output, dict[str, Any]]:
    """Return the shared values of a command's keyword arguments, and what is left."""
    asked_names = {item.name for item in fields(Asked)}
    output_names = {item.name for item in fields(Output)}
    asked = Asked(**{key: value for key, value in values.items() if key in asked_names})
    output = Output(**{key: value for key, value in values.items() if key in output_names})
    rest = {key: value for key, value in values.items() if key not in asked_names | output_names}
    return asked, output, rest
