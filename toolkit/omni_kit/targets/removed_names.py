"""Names that a framework imports from a library and the version that is read no longer has.

They are taken from the installed version, into the process that compares the framework and into no other.
"""

import ast
import builtins
import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from omni_kit.files import files_matching
from omni_kit.isolation.importing import ImportProblem, attempt
from omni_kit.pysource.library import Library, find_library
from omni_kit.pysource.source import parse_file

LIBRARIES = ("transformers", "diffusers")


class Restored(NamedTuple):
    """A name that was put back.

    Attributes:
        where: file:line of the import that needs it.
        version: the version that it was taken from.
    """

    module: str
    name: str
    where: str
    version: str


def said(restored: Sequence[Restored]) -> str:
    """Return one line about what was restored; empty if nothing was."""
    shown = ", ".join(f"{one.name} ({one.where})" for one in restored)
    return f"removed names were taken from {restored[0].version}, in this process only: {shown}" if shown else ""


def restore_names(framework: str) -> list[Restored]:
    """Define in the loaded libraries what a framework imports from them and only their installed versions have.

    Nothing is done where the version that is read is the installed one. A name whose definition does not run in the
    newer module stays away: importing the framework then fails and says so.
    """
    root = next(iter(getattr(PathFinder.find_spec(framework), "submodule_search_locations", None) or ()), None)
    return [one for library in LIBRARIES for one in _restored(Path(root), library)] if root is not None else []


def attempt_restored(framework: str) -> ImportProblem:
    """Import a framework with what it lacks put back; return why that fails, without text if it does not."""
    try:
        restore_names(framework)
    except Exception as error:
        return ImportProblem(f"{type(error).__name__}: {error}")
    return attempt(framework)


def _restored(root: Path, library: str) -> Iterator[Restored]:
    new, old = _versions(library)
    if new is None or old is None:
        return
    seen: set[tuple[str, str]] = set()
    for module, name, where in sorted(set(_imported(root, library))):
        if (module, name) in seen:
            continue
        seen.add((module, name))
        file, now = old.module_file(module), new.module_file(module)
        if file is None or now is None or re.search(rf"\b{name}\b", now.read_text(encoding="utf-8")):
            continue
        if _define(importlib.import_module(module).__dict__, parse_file(file)[1], name, file):
            yield Restored(module, name, where, f"{library} {old.version}")


def _versions(library: str) -> tuple[Library | None, Library | None]:
    """Return the version of a library that this process imports, and another that is installed behind it."""
    places = [Path(place, library) for place in sys.path if Path(place, library, "__init__.py").is_file()]
    found = [find_library(library, place) for place in dict.fromkeys(place.resolve() for place in places)]
    other = (one for one in found if one.version != found[0].version)
    return (found[0] if found else None), next(other, None)


def _imported(root: Path, library: str) -> Iterator[tuple[str, str, str]]:
    """Module, name and file:line of what a framework's files import from modules of a library."""
    for file in files_matching(root, "**/*.py"):
        generates = "generated" in file.relative_to(root).parts or file.name.endswith("_patch_gen_config.py")
        if generates or library not in file.read_text(encoding="utf-8", errors="replace"):
            continue
        try:
            tree = parse_file(file)[1]
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith(f"{library}."):
                where = f"{file.relative_to(root.parent)}:{node.lineno}"
                yield from ((str(node.module), alias.name, where) for alias in node.names)


def _define(names: dict[str, Any], tree: ast.Module, name: str, file: Path) -> bool:
    """Return whether the definition of a name could be run among a module's names, with what it needs and they lack."""
    node = next((one for one in tree.body if getattr(one, "name", None) == name), None)
    if node is None:
        return False
    used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    for lacking in sorted(used - names.keys() - vars(builtins).keys() - {name}):
        source = next((one for one in tree.body if _imports(one, lacking)), None)
        if source is not None:
            _run(source, names, file)
        else:
            _define(names, tree, lacking, file)
    return _run(node, names, file) and name in names


def _imports(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom) and any(name in (a.asname, a.name) for a in node.names)


def _run(node: ast.stmt, names: dict[str, Any], file: Path) -> bool:
    try:
        exec(compile(ast.Module([node], []), str(file), "exec"), names)  # upstream's own statement
    except Exception:
        return False
    return True
