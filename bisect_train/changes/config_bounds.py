"""What the value of a `KEY=VALUE` setting may be: whoever may only ask must not be able to use up the machine with it.

A few aliases of YAML, or references of OmegaConf, stand for billions of values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import yaml

from bisect_train.changes.config_formats import ConfigKind

MAX_VALUE_CHARS = 10_000
MAX_DEPTH = 20
MAX_REFERENCES = 16
"""`${...}` in all settings together: n of them in a chain of keys stand for up to 3^(n/3) times a value."""
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'", re.DOTALL)


def problem_of_value(kind: ConfigKind, text: str) -> str:
    """Return why a value's text is not read, "" where it may be."""
    if len(text) > MAX_VALUE_CHARS:
        return f"the value has {len(text):,} characters, at most {MAX_VALUE_CHARS:,} are read"
    if kind is ConfigKind.DOTENV:
        return ""
    if kind in (ConfigKind.YAML, ConfigKind.OMEGACONF):
        return _problem_of_yaml(text)
    return _too_deep() if _bracket_depth(text) > MAX_DEPTH else ""


def problem_of_references(texts: Iterable[str]) -> str:
    """Return why settings with this many references are not read, "" where they may be."""
    num = sum(text.count("${") for text in texts)
    return f"the settings have {num:,} references ${{...}}, at most {MAX_REFERENCES} are read" if num > MAX_REFERENCES else ""


def _problem_of_yaml(text: str) -> str:
    """Look at the events alone: nothing is built, and the rest of a text that is too deep is not even read."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                return "the value has an anchor or an alias of YAML"
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                return _too_deep()
    except yaml.YAMLError:
        return ""  # whoever reads it says so
    return ""


def _bracket_depth(text: str) -> int:
    depth = most = 0
    for char in _QUOTED.sub("", text):
        depth += (char in "[{(") - (char in "]})")
        most = max(most, depth)
    return most


def _too_deep() -> str:
    return f"the value is nested more than {MAX_DEPTH} deep"
