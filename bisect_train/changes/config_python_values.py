"""Values of expressions in Python config files, found without running anything.

Names that the file assigned before are replaced by what they stand for, so that no value hangs on other keys. Literals,
`dict(key=value)`, `float("inf")` and arithmetic over constants are then evaluated, within bounds on their size. Every
other expression is an `Opaque` value: its source.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import warnings
from collections.abc import Callable, Container, Mapping
from typing import Any

from bisect_train.changes.config_paths import ABSENT, Opaque

_MAX_BITS = 4096  # of an integer that arithmetic may give
_MAX_ITEMS = 100_000  # of a string or list that arithmetic may give
_MAX_SOURCE = 200_000  # characters that one value may stand for


class NotConstantError(Exception):
    """An expression that is more than constants."""


def parse_python(text: str, *, mode: str = "exec") -> Any:
    """Return the syntax tree of Python text.

    Raises:
        ValueError: malformed; names the line.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text, mode=mode)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    except MemoryError:  # the parser's word for too deep a nesting
        raise ValueError("it is nested too deeply") from None


def value_of(node: ast.expr, names: Mapping[str, Any], imports: Mapping[str, str]) -> Any:
    """Return the value of an expression.

    Args:
        node: the expression.
        names: values of the names that were assigned before; ABSENT for names whose value is not known.
        imports: what the file imports: name -> import statement.
    Raises:
        ValueError: the expression stands for too long a source.
    """
    try:
        copied = ast.parse(ast.unparse(node), mode="eval").body
    except SyntaxError:  # `a = *b`, which only the compiler refuses
        raise ValueError(f"line {node.lineno}: this is no expression that has a value") from None
    inlined = _Inliner(node, names).visit(copied)
    source = ast.unparse(ast.fix_missing_locations(inlined))
    if len(source) > _MAX_SOURCE:
        raise ValueError(f"line {node.lineno}: this stands for an expression of {len(source):,} characters")
    try:
        return _as_config_value(evaluate(inlined, {name for name, value in names.items() if value is ABSENT}))
    except (NotConstantError, ArithmeticError, TypeError, ValueError, RecursionError):
        return Opaque(source, _needed_imports(node, names, imports))


def _as_config_value(value: Any) -> Any:
    return value if _is_plain(value) else Opaque(literal_text(value))


def _needed_imports(node: ast.expr, names: Mapping[str, Any], imports: Mapping[str, str]) -> tuple[str, ...]:
    used = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    values = [names.get(name) for name in used]
    needed = {line for value in values if isinstance(value, Opaque) for line in value.imports}
    return tuple(sorted(needed.union(used_imports(node, imports))))


def read_python_value(text: str) -> Any:
    """Return a value as a config file's right side gives it.

    Raises:
        ValueError: the text is no constant expression.
    """
    try:
        return _as_config_value(evaluate(parse_python(text.strip(), mode="eval").body, ()))
    except (NotConstantError, ArithmeticError, TypeError, RecursionError):
        raise ValueError(f"{text!r} is no constant") from None


def literal_text(value: Any) -> str:
    """Return Python source for a value.

    Raises:
        ValueError: there is none.
    """
    if isinstance(value, Opaque):
        return value.source
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal_text(key)}: {literal_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(literal_text, value)) + "," * (isinstance(value, tuple) and len(value) == 1)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, (set, frozenset)) and value:
        return "{" + ", ".join(sorted(map(literal_text, value))) + "}"
    if value is None or isinstance(value, (bool, int, float, str, bytes, complex)):
        return repr(value)
    raise ValueError(f"Python files cannot hold a {type(value).__name__}")


def is_name(text: Any) -> bool:
    """Return whether a key can be assigned in Python."""
    return isinstance(text, str) and text.isidentifier() and not keyword.iskeyword(text)


def used_imports(node: ast.AST, imports: Mapping[str, str]) -> tuple[str, ...]:
    """Return the import statements whose names occur in a syntax tree, sorted."""
    used = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
    return tuple(sorted({imports[name] for name in used if name in imports}))


def evaluate(node: ast.expr, hidden: Container[str]) -> Any:
    """Return the value of a constant expression.

    Args:
        node: the expression.
        hidden: names that do not mean Python's own `dict` and `float` here.
    Raises:
        NotConstantError: it is more than constants, or too large.
        ArithmeticError, TypeError, ValueError: it is an error in Python too.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        items = [evaluate(item, hidden) for item in node.elts]
        return items if isinstance(node, ast.List) else tuple(items) if isinstance(node, ast.Tuple) else set(items)
    if isinstance(node, ast.Dict) and None not in node.keys:
        pairs = zip(node.keys, node.values, strict=True)
        return {evaluate(key, hidden): evaluate(item, hidden) for key, item in pairs if key is not None}
    if isinstance(node, ast.JoinedStr):
        return "".join(str(_text_part(item, hidden)) for item in node.values)
    if isinstance(node, ast.UnaryOp):
        return _UNARY[type(node.op)](evaluate(node.operand, hidden))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _binary(node.op, evaluate(node.left, hidden), evaluate(node.right, hidden))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in hidden:
        return _call(node.func.id, node, hidden)
    raise NotConstantError


def _text_part(node: ast.expr, hidden: Container[str]) -> Any:
    """Return the value of one part of an f-string."""
    if not isinstance(node, ast.FormattedValue):
        return evaluate(node, hidden)
    value = evaluate(node.value, hidden)
    if node.conversion != -1 or node.format_spec is not None or not isinstance(value, (str, int, float)):
        raise NotConstantError
    return value


_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Invert: lambda value: -1 - value,  # `~True` warns
}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}


def _binary(op: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(op, (ast.Mod, ast.Pow, ast.LShift, ast.FloorDiv, ast.Div, ast.Sub)) and not _are_numbers(left, right):
        raise NotConstantError  # such as text % values
    if isinstance(op, ast.Mult):
        _check_product(left, right)
    if isinstance(op, ast.Pow) and (abs(right) > _MAX_BITS or _num_bits(left) * abs(right) > _MAX_BITS):
        raise NotConstantError
    if isinstance(op, ast.LShift) and right > _MAX_BITS:
        raise NotConstantError
    value = _BINARY[type(op)](left, right)
    if _num_bits(value) > _MAX_BITS or (isinstance(value, (str, bytes, list, tuple)) and len(value) > _MAX_ITEMS):
        raise NotConstantError
    return value


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


def _check_product(left: Any, right: Any) -> None:
    for some, times in ((left, right), (right, left)):
        if isinstance(some, (str, bytes, list, tuple)) and isinstance(times, int) and len(some) * times > _MAX_ITEMS:
            raise NotConstantError


def _num_bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 1


def _call(name: str, node: ast.Call, hidden: Container[str]) -> Any:
    """Return the result of `dict(key=value)` or `float("nan")`, the calls that stand for literals."""
    if name == "dict" and not node.args and all(item.arg is not None for item in node.keywords):
        return {item.arg: evaluate(item.value, hidden) for item in node.keywords}
    if name == "float" and len(node.args) == 1 and not node.keywords:
        value = evaluate(node.args[0], hidden)
        if isinstance(value, (str, int, float)):
            return float(value)
    raise NotConstantError


def _is_plain(value: Any) -> bool:
    """Return whether a value is what the other formats hold too: a list, not a tuple."""
    if isinstance(value, dict):
        return all(_is_plain(item) and not isinstance(item, (list, dict)) for item in value) and all(
            map(_is_plain, value.values())
        )
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, bytes))


class _Inliner(ast.NodeTransformer):
    """Puts values in the place of assigned names, except where the expression binds such a name itself."""

    def __init__(self, node: ast.expr, names: Mapping[str, Any]) -> None:
        bound = {item.id for item in ast.walk(node) if isinstance(item, ast.Name) and not isinstance(item.ctx, ast.Load)}
        bound |= {item.arg for item in ast.walk(node) if isinstance(item, ast.arg)}
        self._names = {name: value for name, value in names.items() if name not in bound and value is not ABSENT}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._names:
            return node
        value: ast.expr = ast.parse(literal_text(self._names[node.id]), mode="eval").body
        return value
