"""Names that the statements of a module bind."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


def bindings(body: Sequence[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """Return name -> the statements of a module that bind or change it, in order."""
    found: dict[str, list[ast.stmt]] = {}
    for statement in body:
        for name in dict.fromkeys(_bound(statement)):
            found.setdefault(name, []).append(statement)
    return found


class LazyNames(dict[str, Any]):
    """The names of a module whose statements are evaluated only when somebody asks for one of their names.

    Args:
        statements: see `bindings`.
        evaluate: evaluates statements among these names.
    """

    def __init__(
        self, statements: Mapping[str, Sequence[ast.stmt]], evaluate: Callable[[Sequence[ast.stmt]], None]
    ) -> None:
        super().__init__()
        self._pending = dict(statements)
        self._evaluate = evaluate

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a name; the default where the module does not bind it."""
        return super().get(name, default) if name in self else default

    def __contains__(self, name: object) -> bool:
        """Return whether the module binds a name; statements that bind it are evaluated first."""
        if not super().__contains__(name) and name in self._pending:
            self._evaluate(self._pending.pop(str(name)))
        return super().__contains__(name)


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement binds or changes at the top level of a module."""
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
    """Yield the variables at the root of assignment targets, or of `name.method(...)` as a statement."""
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
