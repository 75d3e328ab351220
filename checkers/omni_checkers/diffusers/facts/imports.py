"""Imports of files from other packages."""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

from omni_kit.errors import BadInput
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile, read_source
from omni_kit.upstream.repositories.names import plain_modules

_ASSUMED = frozenset({"torch", "transformers", "diffusers"})
"""Dependencies of every pipeline: diffusers itself checks for them before it imports one."""
_GUARDS = (ast.If, ast.Try, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ASKS = re.compile(r"is_(\w+)_available")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def foreign_imports(source: SourceFile, library: Library) -> Iterator[tuple[ast.stmt, str]]:
    """Imports at the top level, under no condition, of what need not be there: (statement, package).

    A file that its package exports only where something is installed is under a condition as a whole.
    """
    if _exported_under_condition(source):
        return
    for node in _unguarded(source.tree.body):
        for name in plain_modules(node):
            package = name.partition(".")[0]
            known = package in sys.stdlib_module_names or package in _ASSUMED | {library.name, "__future__"}
            if package and not known and package not in _required():
                yield node, package


def _exported_under_condition(source: SourceFile) -> bool:
    """Return whether the package of a file asks for more than torch and transformers before it exports the file."""
    exporting = source.path.with_name("__init__.py")
    if exporting == source.path or not exporting.is_file():
        return False
    try:
        tree = read_source(source.library, exporting).tree
    except BadInput:
        return False
    tried = [node for node in ast.walk(tree) if isinstance(node, ast.Try) and _speaks_of(node.orelse, source.path.stem)]
    asked = {
        name
        for node in tried
        for one in ast.walk(ast.Module(node.body, []))
        if isinstance(one, ast.Name) and (match := _ASKS.fullmatch(one.id)) and (name := match[1])
    }
    return bool(asked - _ASSUMED)


def _speaks_of(body: Sequence[ast.stmt], module: str) -> bool:
    return any(
        (isinstance(node, ast.ImportFrom) and node.level == 1 and node.module == module)
        or (isinstance(node, ast.Constant) and node.value == module)
        for item in body
        for node in ast.walk(item)
    )


def _unguarded(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, (ast.With, ast.For, ast.While)):
            yield from _unguarded(node.body)
        elif not isinstance(node, _GUARDS):
            yield node


@cache
def _required() -> frozenset[str]:
    """Return the modules of the packages that diffusers, transformers and torch cannot do without, as installed."""
    names = {_plain(name) for package in sorted(_ASSUMED) for name in _needs(package)}
    found = {"numpy", "PIL"}  # diffusers' own types of images
    return frozenset(found).union(
        module for module, owners in packages_distributions().items() if names & {_plain(owner) for owner in owners}
    )


def _needs(package: str) -> list[str]:
    try:
        found = requires(package) or []
    except PackageNotFoundError:
        return []
    return [match.group() for one in found if "extra ==" not in one and (match := _NAME.match(one))]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
