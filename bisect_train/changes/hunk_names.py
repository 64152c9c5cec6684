"""Names that a Python file defines and uses, with their lines: what tells which hunks need which.

A name is a tuple whose first word says where it is looked up:

    ("local", function, name)   parameters and variables; uses inside that function only
    ("name", name)              what the module binds; plain uses in the same file only
    ("export", module, name)    the same, as other files get at it: `from module import name`, `module.name`
    ("module", name)            a file or package that can be imported
    ("attribute", name)         methods and what `self.x = ...` sets; any `.x` may mean it
    ("keyword", name)           parameters and class-level fields; any `f(name=...)` may mean it
    ("key", text)               a config key or a file's name; any string of this text, or `.text`, may mean it

This is a reading of names, not of types: it may tie hunks that have nothing to do with each other, which costs only order.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable
from pathlib import PurePosixPath

Name = tuple[str, ...]
Places = dict[Name, set[int]]
"""Names and the lines, counted from 1, where they stand."""

_MAX_KEY = 80  # longer strings are prose
_Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class ModuleNames(ast.NodeVisitor):
    """The names of one file.

    Attributes:
        defined, used: where.
    """

    def __init__(self, source: bytes, path: str) -> None:
        self.defined: Places = {}
        self.used: Places = {}
        self._module = module_name(path)
        self._scope: tuple[str, ...] = ()  # functions around, the innermost last
        self._is_class_body = False
        self._loads: list[tuple[str, tuple[str, ...], int]] = []
        self._aliases: dict[str, str] = {}
        self._has_star = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        self.visit(tree)
        self._resolve()

    def _resolve(self) -> None:
        """Settle plain uses: those of a variable of a function around, else of the module."""
        for name, scope, line in self._loads:
            around = [scope[:depth] for depth in range(len(scope), 0, -1)]
            local = next((_local(part, name) for part in around if _local(part, name) in self.defined), None)
            self._use(local or ("name", name), line)
            if local is None and self._has_star:
                self._use(("export", "*", name), line)

    def _define(self, name: Name, line: int) -> None:
        self.defined.setdefault(name, set()).add(line)

    def _use(self, name: Name, line: int) -> None:
        self.used.setdefault(name, set()).add(line)

    def _bind(self, name: str, line: int) -> None:
        """Note a binding in the scope at hand."""
        if self._is_class_body:
            self._define(("attribute", name), line)
            self._define(("keyword", name), line)
        elif self._scope:
            self._define(_local(self._scope, name), line)
        else:
            for found in (("name", name), ("export", self._module, name), ("export", "*", name)):
                self._define(found, line)

    def _visit_inside(self, nodes: Iterable[ast.AST], *, scope: tuple[str, ...], is_class: bool) -> None:
        outer = self._scope, self._is_class_body
        self._scope, self._is_class_body = scope, is_class
        for node in nodes:
            self.visit(node)
        self._scope, self._is_class_body = outer

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, name: str) -> None:
        arguments = node.args
        outside = [*arguments.defaults, *(default for default in arguments.kw_defaults if default)]
        if not isinstance(node, ast.Lambda):
            outside += node.decorator_list + ([node.returns] if node.returns else [])
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [extra for extra in (arguments.vararg, arguments.kwarg) if extra]
        outside += [argument.annotation for argument in every if argument.annotation]
        for part in outside:
            self.visit(part)
        scope = (*self._scope, name)
        for argument in every:
            self._define(_local(scope, argument.arg), argument.lineno)
            self._define(("keyword", argument.arg), argument.lineno)
        self._visit_inside(node.body if isinstance(node.body, list) else [node.body], scope=scope, is_class=False)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:  # noqa: D102
        self._bind(node.name, node.lineno)
        self._visit_function(node, node.name)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:  # noqa: D102
        self._bind(node.name, node.lineno)
        self._visit_function(node, node.name)

    def visit_Lambda(self, node: ast.Lambda) -> None:  # noqa: D102
        self._visit_function(node, "<lambda>")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:  # noqa: D102
        self._bind(node.name, node.lineno)
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self._visit_inside(node.body, scope=(*self._scope, f"class {node.name}"), is_class=True)

    def visit_Name(self, node: ast.Name) -> None:  # noqa: D102
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id, node.lineno)
        else:
            self._loads.append((node.id, self._scope, node.lineno))

    def visit_Attribute(self, node: ast.Attribute) -> None:  # noqa: D102
        line = node.end_lineno or node.lineno  # a chain of calls over several lines: the attribute stands at its end
        if isinstance(node.ctx, ast.Store):
            self._define(("attribute", node.attr), line)
        else:
            self._use(("attribute", node.attr), line)
            self._use(("key", node.attr), line)
            if isinstance(node.value, ast.Name):
                module = self._aliases.get(node.value.id, node.value.id)
                self._use(("export", module, node.attr), line)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:  # noqa: D102
        if node.arg:
            self._use(("keyword", node.arg), node.lineno)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:  # noqa: D102
        for alias in node.names:
            parts = alias.name.split(".")
            for part in parts:
                self._use(("module", part), alias.lineno)
            self._aliases[alias.asname or parts[0]] = parts[-1] if alias.asname else parts[0]
            self._bind(alias.asname or parts[0], alias.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:  # noqa: D102
        source = (node.module or "").split(".")
        for alias in node.names:
            for part in (*source, alias.name):
                self._use(("module", part), alias.lineno)
            if alias.name == "*":
                self._has_star = True
                continue
            self._use(("export", source[-1], alias.name), alias.lineno)
            self._aliases[alias.asname or alias.name] = alias.name
            self._bind(alias.asname or alias.name, alias.lineno)

    def visit_Constant(self, node: ast.Constant) -> None:  # noqa: D102
        if isinstance(node.value, str) and 0 < len(node.value) <= _MAX_KEY:
            for text in {node.value, PurePosixPath(node.value).name}:
                self._use(("key", text), node.lineno)


def _local(scope: tuple[str, ...], name: str) -> Name:
    return ("local", ".".join(scope), name)


def module_name(path: str) -> str:
    """Return the name by which a Python file is imported; of a package's `__init__`, the package's."""
    pure = PurePosixPath(path)
    return pure.parent.name if pure.name == "__init__.py" else pure.stem
