"""The files that symbolic evaluation may read: those of one package, and where imports lead."""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_kit.pysource.scopes import bindings
from omni_kit.pysource.source import absolute_module


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
        """Return a module of the package by dotted name; None for one outside, or missing."""
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
        """Return whether a dotted name would have to be a module of this package."""
        return name == self.name or name.startswith(f"{self.name}.")

    def absolute(self, module: Module, node: ast.ImportFrom) -> str:
        """Return the absolute module of a from-import."""
        return absolute_module(module.package, node)

    def body(self, module: Module) -> list[ast.stmt]:
        """Return the statements of a module; none if it has no file that can be read."""
        tree = self.parse(module.path) if module.path.is_file() else None
        return tree.body if tree is not None else []

    def bindings(self, module: Module) -> dict[str, list[ast.stmt]]:
        """Name -> the top-level statements of a module that bind it."""
        if module.path not in self._bindings:
            self._bindings[module.path] = bindings(self.body(module))
        return self._bindings[module.path]
