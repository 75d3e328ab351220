"""A package's exports: its table, imports for type checkers, and dummies for missing requirements."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from omni_kit.pysource.source import SourceFile

_TABLE = "_import_structure"
_DUMMY = "dummy_"


@dataclass
class Exports:
    """The names that an `__init__.py` exports.

    Attributes:
        lazy: (module, name) -> the text that says so, of the table that lazy imports go by.
        typed: (module, name) -> the import that type checkers see; None for the name of a star.
        dummies: (module of dummies, names of the table under the same condition).
    """

    lazy: dict[tuple[str, str], ast.expr] = field(default_factory=dict)
    typed: dict[tuple[str, str], ast.ImportFrom] = field(default_factory=dict)
    dummies: list[tuple[str, dict[str, ast.expr]]] = field(default_factory=list)


def exports_of(source: SourceFile) -> Exports | None:
    """Return a file's exports; None for a package that imports nothing lazily, or builds its table in another form."""
    if _TABLE not in source.text:
        return None
    found = Exports()
    try:
        _read(source.tree.body, found, False)
    except _Unreadable:
        return None
    return found if found.lazy or found.typed else None


class _Unreadable(Exception):
    """The table is made in a way that is not followed."""


def _read(body: Sequence[ast.stmt], found: Exports, typed: bool) -> None:
    for node in body:
        if isinstance(node, ast.If) and _type_checking(node.test):
            _read(node.body, found, True)
        elif isinstance(node, ast.If):
            _read([*node.body, *(node.orelse if not typed else [])], found, typed)
        elif isinstance(node, ast.Try):
            _read(node.orelse, found, typed)
            if (dummies := _dummies(node)) and not typed:
                named = {name: where for (_, name), where in _table(node.orelse)}
                found.dummies.append((dummies, named))
        elif isinstance(node, ast.ImportFrom) and typed and node.level == 1 and node.module is not None:
            found.typed.update({(node.module, alias.asname or alias.name): node for alias in node.names})
        elif not typed:
            found.lazy.update(dict(_table([node])))


def _type_checking(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "TYPE_CHECKING" for node in ast.walk(test))


def _dummies(node: ast.Try) -> str:
    """Return the module of dummies that takes the place of what is exported where a requirement is missing."""
    for handler in node.handlers:
        for item in ast.walk(handler):
            if isinstance(item, ast.ImportFrom) and (item.module or "").endswith("utils"):
                return next((alias.name for alias in item.names if alias.name.startswith(_DUMMY)), "")
    return ""


def _table(body: Sequence[ast.stmt]) -> Iterator[tuple[tuple[str, str], ast.expr]]:
    """Yield the entries that statements put into the table."""
    for node in body:
        target, value = _entry(node)
        if isinstance(target, ast.Name) and isinstance(value, ast.Dict):
            for key, names in zip(value.keys, value.values, strict=True):
                yield from _names(key, names)
        elif isinstance(target, ast.Subscript):
            yield from _names(target.slice, value)


def _entry(node: ast.stmt) -> tuple[ast.expr | None, ast.expr]:
    """`table = value`, `table[key] = value` and what adds to these, as (target, value)."""
    nothing = ast.Constant(None)
    target: ast.expr
    value: ast.expr
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        target, value = node.target, node.value
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
    elif isinstance(node, ast.AugAssign):
        target, value = node.target, node.value
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        target, value = node.value.func.value, _added(node.value)
    else:
        return None, nothing
    held = target.value if isinstance(target, ast.Subscript) else target
    return (target, value) if isinstance(held, ast.Name) and held.id == _TABLE else (None, nothing)


def _added(call: ast.Call) -> ast.expr:
    """Return the value that `.extend([...])`, `.append(...)` or `.update({...})` adds."""
    given = call.args[0] if call.args else ast.Constant(None)
    return ast.List([given], ast.Load()) if getattr(call.func, "attr", "") == "append" else given


def _names(key: ast.expr | None, names: ast.expr) -> Iterator[tuple[tuple[str, str], ast.expr]]:
    if not isinstance(key, ast.Constant):
        raise _Unreadable
    if not isinstance(names, (ast.List, ast.Tuple)):
        raise _Unreadable
    for one in names.elts:
        if not isinstance(one, ast.Constant):
            raise _Unreadable
        yield (str(key.value), str(one.value)), one
