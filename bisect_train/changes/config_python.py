"""Python files of assignments (nanoGPT's configurator style), read and written without running them.

A key is a name that plain assignments at the top level give a value. All other statements together are one value more,
`(statements)`; imports belong to what uses them. Docstrings, `pass` and unused imports count for nothing, like comments.
A file is written by replacing right sides in place until it reads as wanted; a key that an edit of another key would
drag along gets its value written out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bisect_train.changes.config_edits import Edit
from bisect_train.changes.config_paths import ABSENT, Opaque, is_same
from bisect_train.changes.config_python_values import is_name, literal_text, parse_python, used_imports, value_of

STATEMENTS = "(statements)"
_MAX_PASSES = 4
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(slots=True)
class _Module:
    """A parsed file.

    Attributes:
        body: top-level statements.
        assigned: name -> its assignments, for the names that are keys.
        values: what the file gives.
        others: statements that are no assignments of keys.
    """

    body: list[ast.stmt]
    assigned: dict[str, list[ast.Assign | ast.AnnAssign]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    others: list[ast.stmt] = field(default_factory=list)


def load_python(text: str) -> dict[str, Any]:
    """Return the values that a file assigns.

    Raises:
        ValueError: the syntax is wrong; names the line.
    """
    return _read(text).values


def edit_python(text: str, edits: Sequence[Edit], wanted: Any) -> str | None:
    """Return the text with right sides replaced so that it reads as wanted, or None if that is not possible."""
    if not isinstance(wanted, dict):
        return None
    mark = "\ufeff" * text.startswith("\ufeff")
    text = text.removeprefix("\ufeff")
    statements = wanted.get(STATEMENTS)
    if isinstance(statements, Opaque) and not is_same(statements, load_python(text).get(STATEMENTS)):
        text = statements.whole.removeprefix("\ufeff")
    try:
        for _ in range(_MAX_PASSES):
            values = load_python(text)
            if is_same(values, wanted):
                return mark + text
            text = _with_values(text, {key: wanted.get(key, ABSENT) for key in _differing(values, wanted)})
    except (ValueError, RecursionError):
        return None
    return None


def _differing(values: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> list[Any]:
    return [key for key in {**values, **wanted} if not is_same(values.get(key, ABSENT), wanted.get(key, ABSENT))]


def _read(text: str) -> _Module:
    module = _Module(parse_python(text.removeprefix("\ufeff")).body)
    imports = {name: source for node in module.body for name, source in _imports_of(node)}
    bound = {name for node in module.body if _target_of(node) is None for name in _bound_by(node)} | imports.keys()
    env: dict[str, Any] = dict.fromkeys(bound, ABSENT)
    for node in module.body:
        name = _target_of(node)
        if name is not None and name not in bound:
            assert isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
            env[name] = value_of(node.value, env, imports)
            module.assigned.setdefault(name, []).append(node)
        elif not _is_idle(node):
            module.others.append(node)
    module.values.update((name, value) for name, value in env.items() if value is not ABSENT)
    if module.others:
        module.values[STATEMENTS] = _statements(module, imports, text)
    return module


def _statements(module: _Module, imports: Mapping[str, str], text: str) -> Opaque:
    source = "\n".join(map(ast.unparse, module.others))
    needed = {line for node in module.others for line in used_imports(node, imports)}
    return Opaque(source, tuple(sorted(needed)), whole=text)


def _target_of(node: ast.stmt) -> str | None:
    """Return the name that a plain assignment gives a value."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        target = node.targets[0]
    elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
        target = node.target
    else:
        return None
    has_walrus = any(isinstance(item, ast.NamedExpr) for item in ast.walk(node))
    return None if has_walrus else target.id


def _bound_by(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement binds at the top level, imports aside."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    if isinstance(node, _SCOPES):
        yield from (name for item in ast.walk(node) if isinstance(item, ast.Global) for name in item.names)
        return
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (name for name, _ in _imports_of(node))
    if isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
    for child in ast.iter_child_nodes(node):
        yield from _bound_by(child)


def _imports_of(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield what an import statement binds: name, and the statement that binds this one alone."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], ast.unparse(ast.Import([alias]))
    elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
        for alias in node.names:
            if alias.name != "*":
                yield alias.asname or alias.name, ast.unparse(ast.ImportFrom(node.module, [alias], node.level))


def _is_idle(node: ast.stmt) -> bool:
    """Return whether a statement does nothing by itself: `pass`, a docstring, an import of names."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__" or all(alias.name != "*" for alias in node.names)
    return isinstance(node, (ast.Pass, ast.Import))


def _with_values(text: str, wanted: Mapping[Any, Any]) -> str:
    """Return the text with some keys' last assignments replaced, keys added, and the assignments of ABSENT ones removed.

    Raises:
        ValueError: a key or a value cannot be written in Python.
    """
    module = _read(text)
    lines = _Lines(text)
    slices: list[tuple[int, int, str]] = []
    tail: list[str] = []
    for key, value in wanted.items():
        nodes: Sequence[ast.stmt] = module.others if key == STATEMENTS else module.assigned.get(key, [])
        if value is ABSENT:
            slices += [lines.removal(node, module.body) for node in nodes]
        elif key == STATEMENTS or not is_name(key):
            raise ValueError(f"Python cannot assign {key!r}")
        elif nodes:
            node = nodes[-1]
            assert isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
            slices.append((*lines.span(node.value), literal_text(value)))
        else:
            tail.append(f"{key} = {literal_text(value)}\n")
    slices += _new_imports(module, lines, wanted)
    for start, end, new in sorted(slices, key=lambda item: item[:2], reverse=True):
        text = text[:start] + new + text[end:]
    return text + "\n" * bool(tail and text and not text.endswith(("\n", "\r"))) + "".join(tail)


def _new_imports(module: _Module, lines: _Lines, wanted: Mapping[Any, Any]) -> list[tuple[int, int, str]]:
    """Return where the import statements go that new values need and the file lacks."""
    needed = {line for value in wanted.values() if isinstance(value, Opaque) for line in value.imports}
    there = {source for node in module.body for _, source in _imports_of(node)}
    missing = "".join(f"{line}\n" for line in sorted(needed - there))
    first = next((node for node in module.body if not _must_stay_first(node)), None)
    start = lines.start_of(first) if first is not None else len(lines.text)
    return [(start, start, missing)] if missing else []


def _must_stay_first(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


class _Lines:
    """Where syntax tree nodes lie in a text, in characters; the tree counts UTF-8 bytes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", text)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        """Return start and end of a node."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def start_of(self, node: ast.stmt) -> int:
        """Return the start of the line where a statement, or its first decorator, begins."""
        decorators = getattr(node, "decorator_list", [])
        first: int = min([node.lineno, *(item.lineno for item in decorators)])
        return self._starts[first - 1]

    def removal(self, node: ast.stmt, body: Sequence[ast.stmt]) -> tuple[int, int, str]:
        """Return what to cut for a statement and what to put there: its lines, or it alone if other statements share them."""
        assert node.end_lineno is not None
        start, (inner, end) = self.start_of(node), self.span(node)
        is_shared = any(other is not node and _touches(other, node) for other in body)
        if is_shared or ";" in self.text[end : self._starts[node.end_lineno]]:
            return (start if getattr(node, "decorator_list", []) else inner), end, "pass"
        return start, self._starts[node.end_lineno], ""

    def _at(self, line: int, offset: int) -> int:
        text = self._lines[line - 1].encode()[:offset].decode() if line <= len(self._lines) else ""
        return self._starts[line - 1] + len(text)


def _touches(one: ast.stmt, other: ast.stmt) -> bool:
    """Return whether two statements share a line."""
    return one.lineno <= (other.end_lineno or 0) and (one.end_lineno or 0) >= other.lineno
