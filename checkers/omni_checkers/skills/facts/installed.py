"""Installed packages, their modules, names and versions, read and never imported."""

import ast
import builtins
import enum
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path

from omni_kit.pysource.source import absolute_module, dotted, parse_file

_DEEPEST = 12
"""Limit of names that lead to names."""
_COMPILED = (".so", ".pyd")
_OPEN = ("__getattr__", "globals(", "vars(", "sys.modules[", "locals()[")
"""Signs of a module that makes names without writing them."""


class Dead(Exception):
    """A name does not exist; the message says which, and where."""


class Absent(Exception):
    """The package is not installed; the message is its name."""


@dataclass(frozen=True)
class Module:
    """A module: its file, or the folder of a package without one; compiled ones cannot be read."""

    name: str
    path: Path

    @property
    def folder(self) -> Path | None:
        """Return the folder of its submodules; None for a module without any."""
        if self.path.is_dir():
            return self.path
        return self.path.parent if self.path.name.startswith("__init__.") else None

    @cached_property
    def tree(self) -> ast.Module | None:
        """Its code; None if it cannot be read."""
        if self.path.is_dir() or self.path.suffix not in (".py", ".pyi"):
            return None
        try:
            return parse_file(self.path)[1]
        except (OSError, SyntaxError, UnicodeDecodeError):
            return None

    @property
    def is_open(self) -> bool:
        """Return whether it may have names that do not stand in it."""
        if self.tree is None:
            return not self.path.is_dir()
        text = parse_file(self.path)[0]
        return any(word in text for word in _OPEN) or any(isinstance(bound, Star) for _, bound in _bindings(self))

    @property
    def stub(self) -> "Module | None":
        """Return the stub next to the module, for modules that create names at run time."""
        file = self.path.with_suffix(".pyi")
        return Module(self.name, file) if self.is_open and file != self.path and file.is_file() else None


@dataclass(frozen=True)
class Class:
    """A class, where it is defined."""

    module: Module
    node: ast.ClassDef


@dataclass(frozen=True)
class Star:
    """All names of another module."""

    module: str


Binding = ast.stmt | Star


class Installed:
    """Packages below folders; earlier folders come first."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))

    def has(self, package: str) -> bool:
        """Return whether a package of that name can be imported."""
        return package in sys.builtin_module_names or self.module(package) is not None

    @cache  # noqa: B019 - as long as the run
    def module(self, name: str) -> Module | None:
        """Return a module by its dotted name; None if there is none."""
        parent, _, last = name.rpartition(".")
        if not parent:
            found = [module for folder in self.folders if (module := _module_in(folder, last, name)) is not None]
            # As Python does: a folder without __init__.py is the package only where no other is.
            return next((module for module in found if not module.path.is_dir()), found[0] if found else None)
        above = self.module(parent)
        return _module_in(above.folder, last, name) if above is not None and above.folder is not None else None

    @cached_property
    def versions(self) -> dict[str, str]:
        """The versions of installed distributions, by normalised name."""
        found: dict[str, str] = {}
        for folder in self.folders:
            for info in folder.glob("*.dist-info"):
                name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
                found.setdefault(normalised(name), version)
        return found

    def check(self, name: str) -> None:
        """Follow a dotted name as far as the source shows it.

        Raises:
            Absent: its first part is no installed package.
            Dead: one of its parts does not exist.
        """
        first, *rest = name.split(".")
        if first in sys.builtin_module_names:
            return
        module = self.module(first)
        if module is None:
            raise Absent(first)
        self._follow(module, rest, _DEEPEST)

    def _follow(self, at: Module | Class, rest: Sequence[str], depth: int) -> None:
        here: Module | Class | None = at
        for part in rest:
            here = self._attribute(here, part, depth)

    def _attribute(self, at: "Module | Class | None", name: str, depth: int) -> "Module | Class | None":
        """Resolve a name; None for a value, an unknown, and a member of either.

        Raises:
            Dead: there is no such name.
        """
        if at is None or (name.startswith("__") and name.endswith("__")):
            return None
        if isinstance(at, Class):
            self._member(at, name, depth)
            return None
        if (inner := self.module(f"{at.name}.{name}")) is not None:
            return inner
        found, known = self._lookup(at, name, depth)
        if not known and at.stub is not None:
            known = self._lookup(at.stub, name, depth)[1]
        elif not known:
            known = at.is_open and _occurs(at, name)
        if not known:
            raise Dead(f"'{at.name}' has no '{name}'")
        return found

    def _lookup(self, module: Module, name: str, depth: int) -> "tuple[Module | Class | None, bool]":
        """Look up a name of a module, and whether it exists; in an unreadable module, every name does."""
        if module.tree is None or depth < 0:
            return None, not module.path.is_dir()
        stars = []
        for bound, binding in _bindings(module):
            if isinstance(binding, Star):
                stars.append(binding.module)
            elif bound == name:
                return self._meant(module, name, binding, depth), True
        for star in stars:
            other = self.module(star)
            if other is not None and _occurs(other, name) and other.tree is not None:
                found, known = self._lookup(other, name, depth - 1)
                if known:
                    return found, True
        return None, False

    def _meant(self, module: Module, name: str, node: Binding, depth: int) -> "Module | Class | None":
        if isinstance(node, ast.ClassDef):
            return Class(module, node)
        try:
            if isinstance(node, ast.ImportFrom):
                real = next((alias.name for alias in node.names if (alias.asname or alias.name) == name), name)
                home = self.module(absolute_module(_package(module), node))
                return self._attribute(home, real, depth - 1) if home is not None and depth > 0 else None
            if isinstance(node, ast.Import):
                real = next((a.name for a in node.names if a.asname == name), name)
                return self.module(real)
        except Dead:
            return None  # the library's own affair
        return None

    def _member(self, owner: Class, name: str, depth: int) -> None:
        """Raise Dead where neither a class nor any of its bases has a name, and all of them can be read."""
        if depth > 0 and self._has(owner, name, depth) is False:
            raise Dead(f"'{owner.module.name}.{owner.node.name}' has no '{name}'")

    def _has(self, owner: Class, name: str, depth: int) -> bool | None:
        members = set(_members(owner.node))
        if name in members:
            return True
        if depth < 0:
            return None
        if owner.module.name == "enum":
            return hasattr(getattr(enum, owner.node.name), name)
        if owner.node.keywords:  # a metaclass
            return None
        answers = [self._base_has(owner.module, base, name, depth - 1) for base in owner.node.bases]
        return True if True in answers else None if None in answers else False

    def _base_has(self, module: Module, base: ast.expr, name: str, depth: int) -> bool | None:
        text = dotted(base.value if isinstance(base, ast.Subscript) else base)
        if text in ("object", "Generic", "Protocol", "ABC", "typing.Generic", "abc.ABC"):
            return hasattr(object, name)
        if text is None:
            return None
        if (plain := getattr(builtins, text, None)) is not None:
            return hasattr(plain, name)
        here: Module | Class | None = module
        try:
            for part in text.split("."):
                here = self._attribute(here, part, depth)
        except Dead:
            return None
        return self._has(here, name, depth) if isinstance(here, Class) else None


def normalised(name: str) -> str:
    """Return the name of a distribution, as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _module_in(folder: Path, last: str, name: str) -> Module | None:
    if not last.isidentifier():
        return None
    inner = folder / last
    for file in (inner / "__init__.py", inner / "__init__.pyi", folder / f"{last}.py", folder / f"{last}.pyi"):
        if file.is_file():
            return Module(name, file)
    compiled = [file for file in folder.glob(f"{last}.*") if file.suffix in _COMPILED]
    if compiled:
        return Module(name, compiled[0])
    has_code = inner.is_dir() and any(inner.rglob("*.py"))
    return Module(name, inner) if has_code else None


def _package(module: Module) -> str:
    return module.name if module.folder is not None else module.name.rpartition(".")[0]


@lru_cache(maxsize=256)
def _bindings(module: Module) -> list[tuple[str, Binding]]:
    """Return the names that a module binds, with what binds them; the last one counts in Python, any one here."""
    return list(_bound(module.tree.body, _package(module))) if module.tree is not None else []


def _bound(body: Sequence[ast.stmt], package: str) -> Iterator[tuple[str, Binding]]:
    for node in body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node
                continue
            case ast.ImportFrom():
                for alias in node.names:
                    if alias.name == "*":
                        yield "*", Star(absolute_module(package, node))
                    else:
                        yield alias.asname or alias.name, node
            case ast.Import():
                for alias in node.names:
                    yield alias.asname or alias.name.partition(".")[0], node
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    yield inner.id, node
        for part in ("body", "orelse", "finalbody"):
            yield from _bound(getattr(node, part, []), package)
        for handler in getattr(node, "handlers", []):
            yield from _bound(handler.body, package)


def _members(node: ast.ClassDef) -> Iterator[str]:
    for name, _ in _bound(node.body, ""):
        yield name
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            yield inner.attr


@lru_cache(maxsize=4096)
def _occurs(module: Module, name: str) -> bool:
    """Return whether a module that makes names, or a file of its package, has the word at all."""
    word = re.compile(rf"\b{re.escape(name)}\b".encode())
    if module.folder is None:
        return module.tree is None or word.search(module.path.read_bytes()) is not None
    files = (file for kind in ("*.py", "*.pyi") for file in module.folder.rglob(kind))
    return any(word.search(file.read_bytes()) for file in files)
