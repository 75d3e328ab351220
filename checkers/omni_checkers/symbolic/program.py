"""The files that symbolic execution may read: those of one package, and where imports lead."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Module:
    """One parsed module; equal by its file."""

    name: str
    path: Path
    is_package: bool

    @property
    def package(self) -> str:
        """The dotted name that relative imports in the module start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


class Program:
    """A package on disk, read as its importer would see it.

    Args:
        root: the package's directory.
        name: the dotted name that imports it.
        parse: gives the tree of a file; None when it has none that can be read.
        outside: the value of a constant outside the package, by its absolute dotted name; None when it is not known.
    """

    def __init__(
        self,
        root: Path,
        name: str,
        parse: Callable[[Path], ast.Module | None],
        outside: Callable[[str], Any] = lambda name: None,
    ) -> None:
        self.root = root
        self.name = name
        self.parse = parse
        self.outside = outside
        self._modules: dict[str, Module | None] = {}
        self._bindings: dict[Path, dict[str, list[ast.stmt]]] = {}

    def module(self, name: str) -> Module | None:
        """A module of the package by dotted name; None for one outside, or missing."""
        if not self.contains(name):
            return None
        if name not in self._modules:
            self._modules[name] = self._found(name)
        return self._modules[name]

    def _found(self, name: str) -> Module | None:
        base = self.root.joinpath(*name[len(self.name) :].split(".")[1:])
        if (base / "__init__.py").is_file():
            return Module(name, base / "__init__.py", True)
        file = base.with_suffix(".py")
        if file.is_file():
            return Module(name, file, False)
        return Module(name, base, True) if base.is_dir() else None

    def contains(self, name: str) -> bool:
        """Whether a dotted name would have to be a module of this package."""
        return name == self.name or name.startswith(f"{self.name}.")

    def absolute(self, module: Module, node: ast.ImportFrom) -> str:
        """The absolute module of a from-import."""
        if not node.level:
            return node.module or ""
        parts = module.package.split(".")
        base = parts[: len(parts) - node.level + 1]
        return ".".join([*base, *([node.module] if node.module else [])])

    def bindings(self, module: Module) -> dict[str, list[ast.stmt]]:
        """Name -> the top-level statements of a module that bind it."""
        if module.path not in self._bindings:
            tree = self.parse(module.path) if module.path.is_file() else None
            found: dict[str, list[ast.stmt]] = {}
            for statement in tree.body if tree is not None else ():
                for name in dict.fromkeys(_bound(statement)):
                    found.setdefault(name, []).append(statement)
            self._bindings[module.path] = found
        return self._bindings[module.path]


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds or changes at the top level of a module."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)):
        yield from _changed(node)
    else:
        for field in ("body", "orelse", "finalbody", "handlers"):
            for inner in getattr(node, field, ()):
                yield from _bound(inner)


def _changed(node: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr) -> Iterator[str]:
    """The variables at the root of assignment targets, or of `name.method(...)` as a statement."""
    if isinstance(node, ast.Expr):
        targets = [node.value.func] if isinstance(node.value, ast.Call) else []
    else:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        for item in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            while isinstance(item, (ast.Attribute, ast.Subscript, ast.Starred)):
                item = item.value
            if isinstance(item, ast.Name):
                yield item.id
