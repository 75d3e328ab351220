"""Statements of the authors that later ones need, and the names that they read."""

import ast
import copy
from collections.abc import Collection, Iterator, Mapping, Sequence

from omni_kit.pysource.eval import Unsupported

_SWITCHES = ("no_grad", "inference_mode")


class DenoiserCall(ast.Pass):
    """Placeholder for the statements that call the model.

    Attributes:
        number: of the places in a loop where it is asked.
        sample: what it receives as latents, once.
        time: what it is told as the step, of one picture.
        answer: the variable that holds what it answers, guided where the loop guides.
        real: the step is told as a number with a fraction, of any kind counted in.
    """

    number: int
    sample: ast.expr
    time: ast.expr
    answer: str
    real: bool = False


def flat(body: Sequence[ast.stmt], guides: Collection[str]) -> Iterator[ast.stmt]:
    """Yield statements without those that only say that there are no gradients, or that guidance is wanted at all.

    Args:
        guides: the variables that are there where guidance is wanted: its scale, and what is guided against.

    Raises:
        Unsupported: a statement is none that goes from top to bottom.
    """
    for node in body:
        if (isinstance(node, ast.With) and all(is_switch(one.context_expr) for one in node.items)) or (
            isinstance(node, ast.If) and reads(node.test) and reads(node.test) <= {*guides}
        ):
            yield from flat(node.orelse if isinstance(node, ast.If) and _is_none(node.test) else node.body, guides)
        elif isinstance(node, ast.If):
            yield ast.If(node.test, list(flat(node.body, guides)), list(flat(node.orelse, guides)))
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield ast.copy_location(ast.Assign([node.target], node.value), node)
        elif isinstance(node, ast.Assign):
            yield from _one_by_one(node)
        elif isinstance(node, ast.AugAssign | ast.Expr):
            yield node
        elif not isinstance(node, ast.Pass | ast.Assert | ast.Delete | ast.AnnAssign):
            raise Unsupported(f"has a `{type(node).__name__.lower()}` in line {node.lineno}")


def parallel(node: ast.stmt) -> list[tuple[ast.Name, ast.expr]]:
    """Return the variable and the value of each pair that `a, b = x, y` assigns; empty for another statement."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(values):
            names = [one for one in targets if isinstance(one, ast.Name)]
            return list(zip(names, values, strict=True)) if len(names) == len(targets) else []
    return []


def _one_by_one(node: ast.Assign) -> list[ast.stmt]:
    """Return the statements `a = x; b = y` for `a, b = x, y`, where the order does not matter."""
    pairs = parallel(node)
    if not pairs or reads(node.value) & {target.id for target, _ in pairs}:
        return [node]
    return [ast.copy_location(ast.Assign([target], value), node) for target, value in pairs]


def _is_none(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is)


def is_switch(node: ast.expr) -> bool:
    """Return whether a context only says that there are no gradients."""
    name = node.func if isinstance(node, ast.Call) else node
    return isinstance(name, ast.Attribute) and name.attr in _SWITCHES


def reads(node: ast.AST) -> set[str]:
    """Return the variables that are read."""
    if isinstance(node, DenoiserCall):
        return reads(node.sample) | reads(node.time)
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    if isinstance(node, ast.AugAssign):
        found |= _names(node.target)
    return found


def binds(node: ast.stmt) -> set[str]:
    """Return the variables that a statement, with all in it, gives another value."""
    if isinstance(node, ast.If):
        return {name for one in (*node.body, *node.orelse) for name in binds(one)}
    if isinstance(node, DenoiserCall):
        return {node.answer}
    if isinstance(node, ast.Expr):
        return {changed} if (changed := _changed(node)) else set()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return {name for one in targets for name in _names(one)}


def needed(body: Sequence[ast.stmt], after: set[str]) -> tuple[list[ast.stmt], set[str]]:
    """Return the statements that what comes after them needs, and what must be known before the first.

    Args:
        after: the variables that are read afterwards.
    """
    kept: list[ast.stmt] = []
    live = set(after)
    for node in reversed(body):
        if isinstance(node, ast.If):
            (then, one), (other, two) = needed(node.body, live), needed(node.orelse, live)
            if then or other:
                kept.append(ast.If(node.test, then or [ast.Pass()], other))
                live = one | two | reads(node.test)
        elif isinstance(node, DenoiserCall) or binds(node) & live or _is_kept(node):
            kept.append(node)
            live = (live - _replaced(node)) | reads(node)
    return kept[::-1], live


def needed_in_loop(body: Sequence[ast.stmt], after: set[str]) -> tuple[list[ast.stmt], set[str]]:
    """Return what `needed` does for the body of a loop: what a step needs of an earlier one stays, too."""
    kept, live = needed(body, after)
    while more := live & {name for node in body for name in binds(node)} - after:
        after = after | more
        kept, live = needed(body, after)
    return kept, live


def _is_kept(node: ast.stmt) -> bool:
    """Return whether a statement sets an attribute: of the object that it is moved into."""
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)


def _replaced(node: ast.stmt) -> set[str]:
    if isinstance(node, DenoiserCall):
        return {node.answer}
    if not isinstance(node, ast.Assign):
        return set()
    return {one.id for target in node.targets for one in ast.walk(target) if _is_stored(one)}  # type: ignore[attr-defined]


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _changed(node: ast.Expr) -> str:
    """Return the variable that a statement like `past.append(answer)` changes; empty for others."""
    call = node.value
    owner = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    return owner.id if isinstance(owner, ast.Name) else ""


def _names(target: ast.expr) -> set[str]:
    while isinstance(target, ast.Subscript | ast.Attribute):
        target = target.value
    return {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}


class Substituted(ast.NodeTransformer):
    """Revalues variables by expressions; one that is assigned, by another variable."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Replace a name by its value."""
        found = self.values.get(node.id)
        if isinstance(node.ctx, ast.Store):
            return ast.Name(found.id, node.ctx) if isinstance(found, ast.Name) else node
        return copy.deepcopy(found) or node
