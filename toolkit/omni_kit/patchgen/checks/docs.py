"""auto_docstring complains about every parameter that nobody documents."""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from omni_kit.patchgen.apply import Applied
from omni_kit.patchgen.checks.facts import Facts
from omni_kit.patchgen.diagnostics import Diagnostic, warning
from omni_kit.pysource.source import read_text

_KNOWN = re.compile(r"^    (\w+) = \{", re.MULTILINE)
_DOCUMENTED = re.compile(r"^\s*(\w+)\s*\(", re.MULTILINE)


def undocumented(facts: Facts) -> Iterator[Diagnostic]:
    """An override under @auto_docstring has a parameter that neither its docstring nor transformers describes."""
    known: frozenset[str] | None = None
    for applied in facts.applied:
        function = _documented_function(applied)
        if function is None:
            continue
        if known is None:
            place = facts.libraries.file_of("transformers.utils.auto_docstring")
            known = _known_arguments(place) if place else frozenset()
        missing = [name for name in _parameters(function) if name not in known | _described(function)]
        if missing:
            target = applied.patch.target
            message = f"{target}: {', '.join(missing)} missing from the docstring; @auto_docstring warns at import"
            yield warning("undocumented-parameter", message, applied.patch.origin, missing)


def _documented_function(applied: Applied) -> ast.FunctionDef | None:
    if applied.fragment is None or not isinstance(applied.fragment.node, ast.FunctionDef):
        return None
    kept = applied.definition.node.decorator_list if applied.definition and applied.owner else []
    texts = [ast.unparse(d) for d in kept] + [d[1:] for d in applied.fragment.decorators]
    return applied.fragment.node if any(t.split("(")[0].endswith("auto_docstring") for t in texts) else None


def _parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
    return [name for name in names if name not in ("self", "cls", "args", "kwargs")]


def _described(function: ast.FunctionDef) -> set[str]:
    return set(_DOCUMENTED.findall(ast.get_docstring(function, clean=False) or ""))


@lru_cache(maxsize=4)
def _known_arguments(path: Path) -> frozenset[str]:
    return frozenset(_KNOWN.findall(read_text(path)))
