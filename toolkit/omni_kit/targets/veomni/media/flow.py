"""Follows a call's result through a function: through variables, attributes, entries of dicts, branches and loops."""

import ast
from collections.abc import Iterator, Sequence

Held = tuple[ast.stmt, frozenset[str]]
"""A plain statement, and the places that hold what the call returned, or what was made of it, when it runs."""
_ABOUT = {"shape", "dtype", "device", "size", "numel", "ndim", "dim"}
"""Attributes of a tensor that do not read its values."""
_ADDS = {"append", "extend", "update", "insert"}


def place_of(node: ast.AST) -> str:
    """Return the text of a place; `x.get("key")` is the place `x["key"]`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        return f"{place_of(node.func.value)}[{ast.unparse(node.args[0])}]"
    return ast.unparse(node)


def statements_with(body: Sequence[ast.stmt], call: ast.Call) -> Iterator[Held]:
    """Yield the plain statements that run after a call while something holds its result, in the order of the source."""
    yield from _Flow(call).through(body, set())


class _Flow:
    def __init__(self, call: ast.Call) -> None:
        self._call = call

    def through(self, body: Sequence[ast.stmt], held: set[str]) -> Iterator[Held]:
        """Go through statements; `held` becomes what holds the result after them."""
        for statement in body:
            if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr):
                if held:
                    yield statement, frozenset(held)
                self._run(statement, held)
            else:
                yield from self._branches(statement, held)

    def _branches(self, statement: ast.stmt, held: set[str]) -> Iterator[Held]:
        """Go through each block of a statement by itself; afterwards is held what one of them leaves held."""
        if isinstance(statement, ast.For) and self._carries(statement.iter, held):
            held.update(_places(statement.target))
        blocks = [block for name in ("body", "orelse", "finalbody") if (block := getattr(statement, name, None))]
        blocks += [handler.body for handler in getattr(statement, "handlers", ())]
        left = set() if isinstance(statement, ast.If) and len(blocks) == 2 else set(held)
        for block in blocks:
            own = set(held)
            yield from self.through(block, own)
            left |= own
        held.clear()
        held.update(left)

    def _run(self, statement: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr, held: set[str]) -> None:
        carries = statement.value is not None and self._carries(statement.value, held)
        if isinstance(statement, ast.Expr):
            function = statement.value.func if isinstance(statement.value, ast.Call) else None
            if carries and isinstance(function, ast.Attribute) and function.attr in _ADDS:
                held.add(place_of(function.value))
            return
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        places = {place for target in targets for place in _places(target)}
        if carries:
            held |= places
        elif not isinstance(statement, ast.AugAssign):
            held -= places

    def _carries(self, node: ast.AST, held: set[str]) -> bool:
        """Return whether a value is made of the call's result; its shape and dtype are not."""
        if node is self._call or (isinstance(node, ast.expr) and place_of(node) in held):
            return True
        if isinstance(node, ast.Attribute) and node.attr in _ABOUT:
            return False
        return any(self._carries(child, held) for child in ast.iter_child_nodes(node))


def _places(target: ast.expr) -> Iterator[str]:
    """Yield the places that an assignment fills."""
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from _places(one)
    elif isinstance(target, ast.Starred):
        yield from _places(target.value)
    else:
        yield place_of(target)
