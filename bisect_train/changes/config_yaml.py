"""YAML read by PyYAML's SafeLoader, and written two ways: scalars replaced in place, so that comments and every other
character stay, or dumped afresh.

The in-place way covers the usual case, a scalar that becomes another scalar, and matters beyond looks: other loaders
(omegaconf, ruamel) read `1e-4` and `'1e-4'` differently, so what did not change should stay as it was written. It
gives up, and says so with None, wherever an edit is more than that; the caller checks what it wrote by reading it
back.

A file of several documents is a list of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from bisect_train.changes.config_edits import Edit
from bisect_train.changes.config_paths import ABSENT, Path, plain_copy
from bisect_train.core.yaml_text import load_yaml_documents, load_yaml_text


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def load_yaml(text: str) -> Any:
    """Return the values of a YAML file, a list of values if it holds several documents; an empty document is {}.

    Raises:
        yaml.YAMLError, ValueError: malformed, or a document of several is no mapping.
    """
    documents = [plain_copy(document) for document in load_yaml_documents(text)]
    documents = [{} if document is None else document for document in documents]
    if len(documents) < 2:
        return documents[0] if documents else {}
    for number, document in enumerate(documents, start=1):
        if not isinstance(document, dict):
            raise ValueError(f"document {number} of {len(documents)} is a {type(document).__name__}, not keys and values")
    return documents


def has_documents(text: str) -> bool:
    """Return whether a YAML text holds more than one document."""
    return sum(isinstance(event, yaml.DocumentStartEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)) > 1


def dump_yaml(values: Any) -> str:
    """Return values as YAML in block style, without aliases, in their order; a list gives one document per item."""
    documents = values if isinstance(values, list) else [values]
    return yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31, explicit_start=len(documents) > 1
    )


def read_yaml_value(text: str) -> Any:
    """Return a value as YAML reads it."""
    return plain_copy(load_yaml_text(text))


def edit_yaml(text: str, edits: Sequence[Edit], wanted: Any = None) -> str | None:
    """Return the text with the scalars at some paths replaced, or None if that is not possible."""
    roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    slices: list[tuple[int, int, str]] = []
    for edit in edits:
        node = _scalar_at(roots, edit.path)
        new = _inline_scalar(edit.value)
        if node is None or new is None:
            return None
        slices.append((node.start_mark.index, node.end_mark.index, new))
    if text.startswith("\ufeff"):  # PyYAML's marks do not count a byte order mark
        return None
    for start, end, new in sorted(slices, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _scalar_at(roots: Sequence[yaml.Node], path: Path) -> yaml.ScalarNode | None:
    """Return the scalar that is written at a path; one that an alias shares looks the same, so read back what you edit."""
    if len(roots) > 1 and path:
        roots, path = [roots[path[0]]], path[1:]
    node = roots[0] if len(roots) == 1 else None
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
