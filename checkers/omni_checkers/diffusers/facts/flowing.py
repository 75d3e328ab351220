"""Data flow from the variables of a function."""

import ast
from collections.abc import Iterable, Iterator, Sequence

from omni_checkers.engine.files import walked


def going_on(function: ast.FunctionDef) -> set[str]:
    """Return the variables whose values get somewhere.

    One that only makes others which get nowhere does not; nor does one of which is only asked whether it is None.
    """
    inner = {id(node) for _, value in _made(function) for node in walked(value)}
    return _and_what_makes({name for name, node in _read(function) if id(node) not in inner}, function)


def going_into(nodes: Iterable[ast.AST], function: ast.FunctionDef) -> set[str]:
    """Return the variables that some nodes of a function read, and those that make them."""
    return _and_what_makes({name for node in nodes for name, _ in _read(node)}, function)


def _and_what_makes(found: set[str], function: ast.FunctionDef) -> set[str]:
    made = [(targets, {name for name, _ in _read(value)}) for targets, value in _made(function)]
    while True:
        more = {name for targets, read in made if targets & found for name in read} - found
        if not more:
            return found
        found = found | more


def _made(function: ast.FunctionDef) -> Iterator[tuple[set[str], ast.expr]]:
    """Yield assignments to variables alone: their names, and the value."""
    for node in walked(function):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = variables(targets)
            if names is not None:
                yield set(names), node.value


def variables(targets: Sequence[ast.expr]) -> list[str] | None:
    """Return the names in targets of an assignment, in their order; None if something else is set, too."""
    plain: list[str] = []
    for target in targets:
        for one in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
            if not isinstance(one, ast.Name):
                return None
            plain.append(one.id)
    return plain


def _read(node: ast.AST) -> Iterator[tuple[str, ast.Name]]:
    """Yield the variables that are read at or below a node, but for questions whether one is None."""
    asked = {
        id(one.left)
        for one in walked(node)
        if isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Is | ast.IsNot)
    }
    for one in walked(node):
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load) and id(one) not in asked:
            yield one.id, one
