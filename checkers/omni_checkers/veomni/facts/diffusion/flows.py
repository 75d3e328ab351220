"""Data flow inside a function, from plain assignments, without executing it."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_kit.pysource.nodes import last_name

_DEEP = 8


class Flows:
    """The assignments of one function.

    Args:
        node: the function.
    """

    def __init__(self, node: ast.FunctionDef) -> None:
        self.node = node
        self._given: dict[str, list[tuple[int, ast.expr]]] = {}
        for item in walked(node):
            for name, line, value in _bindings(item):
                self._given.setdefault(name, []).append((line, value))

    def sources(self, value: ast.expr, line: int) -> list[ast.expr]:
        """Return an expression, and all that was assigned to the names in it before a line, and to those in turn."""
        found: list[ast.expr] = []
        todo: list[tuple[ast.expr, int, int]] = [(value, line, 0)]
        seen: set[tuple[str, int]] = set()
        while todo:
            one, before, depth = todo.pop()
            found.append(one)
            for item in walked(one) if depth < _DEEP else ():
                name = item.id if isinstance(item, ast.Name) else ""
                for start, inner in self._given.get(name, ()):
                    if start < before and (name, start) not in seen:
                        seen.add((name, start))
                        todo.append((inner, start + 1 if inner.lineno == before else start, depth + 1))
        return found

    def called_on_the_way(self, value: ast.expr, line: int) -> set[str]:
        """The last names of all calls that a value went through."""
        return {
            last_name(node) for one in self.sources(value, line) for node in walked(one) if isinstance(node, ast.Call)
        }


def _bindings(item: ast.AST) -> Iterator[tuple[str, int, ast.expr]]:
    """(name, line, value) of what a node assigns to plain names; to all of them where it unpacks."""
    if isinstance(item, ast.Assign):
        for target in item.targets:
            parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            values = item.value.elts if isinstance(item.value, ast.Tuple) and len(item.value.elts) == len(parts) else []
            for number, part in enumerate(parts):
                if isinstance(part, ast.Name):
                    yield part.id, item.lineno, values[number] if values else item.value
    elif isinstance(item, (ast.AnnAssign, ast.AugAssign)) and isinstance(item.target, ast.Name):
        if item.value is not None:
            yield item.target.id, item.lineno, item.value
    elif isinstance(item, ast.NamedExpr):
        yield item.target.id, item.lineno, item.value


def branches(node: ast.AST) -> Iterator[ast.If]:
    """Yield the branches below a node."""
    yield from (item for item in walked(node) if isinstance(item, ast.If))
