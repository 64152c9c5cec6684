"""Configs for the demo of `bisect-train check`: one that is safe to change to, one that is not.

All three are read by the program at the demo's last commit, and every mixture of them runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

HARMFUL_KEY = "optimizer.eps"


@dataclass(frozen=True, slots=True)
class CheckConfigs:
    """Paths of the written configs.

    Attributes:
        base: The config of the last commit.
        harmful: Eight keys differ from base; `harmful_key` alone makes training worse.
        harmless: Eight keys differ from base, none with an effect.
        harmful_key: Dotted path of the key.
    """

    base: Path
    harmful: Path
    harmless: Path
    harmful_key: str = HARMFUL_KEY


def write_check_configs(folder: Path) -> CheckConfigs:
    """Write the three configs into a folder, which is created if need be; existing files of these names are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    return CheckConfigs(
        base=_copy("base.yaml", folder), harmful=_copy("harmful.yaml", folder), harmless=_copy("harmless.yaml", folder)
    )


def _copy(name: str, folder: Path) -> Path:
    text = files("bisect_train.demo").joinpath("check", name).read_text(encoding="utf-8")
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="\n")
    return path
