"""Module-level names that a module binds, and the definitions that use each of them."""

import ast
import builtins
import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

_IMPLICIT = frozenset(
    {
        *dir(builtins),
        "__file__",
        "__name__",
        "__doc__",
        "__spec__",
        "__loader__",
        "__package__",
        "__path__",
        "__builtins__",
    }
)
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_STAR = re.compile(r"^[ \t]*from[ \t]+\S+[ \t]+import[ \t]*\*", re.MULTILINE)


@dataclass
class Scopes:
    """`bound` are the module's names; `uses` maps a name to where it is used: "" for the module's own statements,
    else the path of the class or function ("C.m", "f"); `eager` are the uses that run when the module is imported;
    `has_star` says that a star import may bind anything."""

    bound: set[str] = field(default_factory=set)
    uses: dict[str, set[str]] = field(default_factory=dict)
    eager: dict[str, set[str]] = field(default_factory=dict)
    has_star: bool = False

    def undefined(self) -> dict[str, set[str]]:
        """Return names that are used and nowhere bound, with the places of their use; none after a star import."""
        if self.has_star:
            return {}
        return {name: places for name, places in self.uses.items() if name not in self.bound and name not in _IMPLICIT}

    def users_by_definition(self) -> dict[str, set[str]]:
        """For each name, the top-level definitions that use it ("" for the module's own statements)."""
        return {name: {place.partition(".")[0] for place in places} for name, places in self.uses.items()}


@lru_cache(maxsize=64)
def scopes_of(text: str) -> Scopes:
    """Return the scopes of a module's text.

    Raises:
        SyntaxError: it is not Python.
    """
    result = Scopes()
    table = symtable.symtable(text, "module", "exec")
    for symbol in table.get_symbols():
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace():
            result.bound.add(symbol.get_name())
    _visit(table, (), result, eager=True)
    result.has_star = bool(_STAR.search(text))
    return result


def quoted_names(node: ast.AST) -> Iterator[str]:
    """Identifiers inside quoted annotations below `node`."""
    for inner in ast.walk(node):
        annotations = [getattr(inner, "annotation", None), getattr(inner, "returns", None)]
        for annotation in filter(None, annotations):
            for part in ast.walk(annotation):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield from _IDENTIFIER.findall(part.value)


def _visit(table: symtable.SymbolTable, path: tuple[str, ...], result: Scopes, *, eager: bool) -> None:
    place = ".".join(path)
    is_module = table.get_type() == "module"
    for symbol in table.get_symbols():
        name = symbol.get_name()
        if symbol.is_global() and symbol.is_assigned() and not is_module:
            result.bound.add(name)
        if symbol.is_referenced() and (symbol.is_global() or is_module):
            result.uses.setdefault(name, set()).add(place)
            if eager:
                result.eager.setdefault(name, set()).add(place)
    for child in table.get_children():
        named = child.get_type() in ("class", "function") and child.get_name() not in _ANONYMOUS
        inner = (*path, child.get_name()) if named and not _in_function(table) else path
        runs_now = eager and (child.get_type() == "class" or child.get_name() in _COMPREHENSIONS)
        _visit(child, inner, result, eager=runs_now)


_COMPREHENSIONS = frozenset({"listcomp", "setcomp", "dictcomp", "genexpr"})
_ANONYMOUS = frozenset({"lambda", *_COMPREHENSIONS})


def _in_function(table: symtable.SymbolTable) -> bool:
    return table.get_type() == "function"
