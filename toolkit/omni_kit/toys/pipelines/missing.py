"""The package behind a name that a module does not have, because it imports it only where it is installed."""

import ast
import re
import traceback
from pathlib import Path

from omni_kit.pysource.source import dotted, parse_file

_UNDEFINED = re.compile(r"name '(\w+)' is not defined")
_NOT_INSTALLED = re.compile(r"`(\w+)` is not installed|No module named '(\w+)|requires the (\w+) library")
_GUARD = re.compile(r"is_(\w+)_available$")


def missing_package(error: Exception) -> str | None:
    """Return the package that an error comes from; None if it comes from something else."""
    if isinstance(error, ImportError):
        found = _NOT_INSTALLED.search(str(error))
        return next((name.lower() for name in found.groups() if name), None) if found else None
    found = _UNDEFINED.search(str(error)) if isinstance(error, NameError) else None
    frames = traceback.extract_tb(error.__traceback__)
    if found is None or not frames or not Path(frames[-1].filename).is_file():
        return None
    _, tree = parse_file(Path(frames[-1].filename))
    tests = (node for node in tree.body if isinstance(node, ast.If) and _imports(node.body, found[1]))
    return next((name for test in tests for name in _guarding(test.test)), None)


def _imports(body: list[ast.stmt], name: str) -> bool:
    given = (alias for node in body if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names)
    return any((alias.asname or alias.name.partition(".")[0]) == name for alias in given)


def _guarding(test: ast.expr) -> list[str]:
    """Return the packages that a condition asks for."""
    calls = (dotted(node.func) or "" for node in ast.walk(test) if isinstance(node, ast.Call))
    return [found[1] for call in calls if (found := _GUARD.search(call))]
