"""YAML with `${...}` interpolations, read as OmegaConf reads it and compared by what the interpolations stand for.

Only references to other keys are resolved, and only if all of them can be: then a value stands for the same thing
whatever else changes. Resolvers (`${oc.env:HOME}`, `${now:...}`) stay text: their results belong to the place where
the program runs, and may be secrets.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import yaml

from bisect_train.changes.config_paths import get_at, plain_copy
from bisect_train.core.errors import MISSHAPEN

_MARK = "\0resolver "


def has_interpolation(text: str) -> bool:
    """Return whether a YAML text may hold interpolations, and omegaconf is there to read them."""
    return "${" in text and importlib.util.find_spec("omegaconf") is not None


def load_omegaconf(text: str) -> Any:
    """Return the values of a YAML file with references to other keys resolved.

    Raises:
        ValueError: not every reference can be resolved without running a resolver, or OmegaConf cannot read the file.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        raw = OmegaConf.to_container(OmegaConf.create(text))
        masked = _map_text(raw, lambda item: _MARK + item.replace("${", "$\0{") if _calls_resolver(item) else item)
        resolved = plain_copy(OmegaConf.to_container(OmegaConf.create(masked), resolve=True))
    except (OmegaConfBaseException, yaml.YAMLError, AssertionError, OSError, *MISSHAPEN) as error:
        raise ValueError(" ".join(str(error).split())) from None
    if not isinstance(resolved, dict):
        raise ValueError("the top level is no mapping")
    _check_resolved(resolved, masked, ())
    return _map_text(resolved, lambda item: item.removeprefix(_MARK).replace("$\0{", "${"))


def dump_omegaconf(values: Any) -> str:
    """Return values as YAML that OmegaConf reads back as they are.

    Raises:
        ValueError: OmegaConf cannot hold a value.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.to_yaml(OmegaConf.create(values))
    except (OmegaConfBaseException, yaml.YAMLError, AssertionError, *MISSHAPEN) as error:
        raise ValueError(str(error)) from None


def read_omegaconf_value(text: str) -> Any:
    """Return a value as OmegaConf reads it. Raises ValueError: it cannot."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        values = OmegaConf.to_container(OmegaConf.create(f"value: {text}"))
    except (OmegaConfBaseException, AssertionError, *MISSHAPEN) as error:
        raise ValueError(" ".join(str(error).split())) from None
    assert isinstance(values, dict)
    return values["value"]


def _map_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _map_text(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_map_text(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _calls_resolver(text: str) -> bool:
    """Return whether a text holds `${name:...}`, at any depth."""
    depth = 0
    for idx, char in enumerate(text):
        if text.startswith("${", idx):
            depth += 1
        elif char == "}" and depth:
            depth -= 1
        elif char == ":" and depth:
            return True
    return False


def _check_resolved(value: Any, masked: Any, path: tuple[Any, ...]) -> None:
    """Raise if a resolved value still holds an interpolation, or refers to a resolver's result."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            _check_resolved(item, masked, (*path, key))
    elif isinstance(value, str) and ("${" in value or (_MARK in value and get_at(masked, path) != value)):
        raise ValueError(f"{'.'.join(map(str, path))} cannot be resolved")
