"""Who imports whom, read from source: lazy imports and those for type checkers count, too."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import omni_checkers
import omni_kit

PACKAGES = {
    "omni_kit": Path(str(omni_kit.__file__)).parent,
    "omni_checkers": Path(str(omni_checkers.__file__)).parent,
}


@cache
def modules() -> Mapping[str, Path]:
    """Dotted name -> file, of all modules of both packages."""
    found = {}
    for package, root in PACKAGES.items():
        for file in sorted(root.rglob("*.py")):
            parts = (package, *file.relative_to(root).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Module -> the modules of both packages that it imports anywhere."""
    return {name: frozenset(_imported(file)) - {name} for name, file in modules().items()}


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from (name for name in [inner if inner in modules() else node.module] if name in modules())
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules())


def room_of(module: str) -> str:
    """The room of a module: the part of the package that it lies in."""
    package, *rest = module.split(".")
    return f"{package}.{rest[0]}" if rest else package
