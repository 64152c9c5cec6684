"""YAML written two ways: scalars replaced in place, so that comments and every other character stay, or dumped afresh.

The in-place way covers the usual case, a scalar that becomes another scalar, and matters beyond looks: other loaders
(omegaconf, ruamel) read `1e-4` and `'1e-4'` differently, so what did not change should stay as it was written. It
gives up, and says so with None, wherever an edit is more than that; the caller checks what it wrote by reading it
back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from bisect_train.changes.config_paths import ABSENT, Path


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def dump_yaml(values: Any) -> str:
    """Return values as a YAML document in block style, without aliases, in their order."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31)


def edit_yaml(text: str, edits: Sequence[tuple[Path, Any]]) -> str | None:
    """Return the text with the scalars at some paths replaced, or None if that is not possible."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    slices: list[tuple[int, int, str]] = []
    for path, value in edits:
        node = _scalar_at(root, path)
        new = _inline_scalar(value)
        if node is None or new is None:
            return None
        slices.append((node.start_mark.index, node.end_mark.index, new))
    if text.startswith("\ufeff"):  # PyYAML's marks do not count a byte order mark
        return None
    for start, end, new in sorted(slices, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _scalar_at(node: yaml.Node | None, path: Path) -> yaml.ScalarNode | None:
    """Return the scalar that is written at a path; one that an alias shares looks the same, so read back what you edit."""
    for step in path:
        if isinstance(node, yaml.MappingNode):
            found = [value for key, value in node.value if _key_of(key) == step]
            node = found[-1] if found else None
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
        else:
            return None
    if not isinstance(node, yaml.ScalarNode) or node.style in ("|", ">"):
        return None
    return node if node.end_mark.index > node.start_mark.index else None  # `key:` alone is a null without text


def _key_of(node: yaml.Node) -> Any:
    return node.value if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:str" else None


def _inline_scalar(value: Any) -> str | None:
    """Return a scalar as it is written on one line inside any collection, or None."""
    if value is ABSENT or isinstance(value, (dict, list, set)):
        return None
    text = yaml.dump([value], Dumper=_Dumper, default_flow_style=True, allow_unicode=True, width=2**31).strip()
    return text[1:-1] if text.startswith("[") and text.endswith("]") and "\n" not in text else None
