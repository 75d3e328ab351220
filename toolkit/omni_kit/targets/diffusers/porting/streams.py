"""Data flow in a forward: the modules it calls in order, and what they receive."""

import ast
from collections.abc import Collection, Iterator, Mapping

from omni_kit.targets.diffusers.porting.projections import assigned

RETURNED = "return"
"""Key for returned values, in place of a variable."""
_SURROUNDINGS = frozenset({"dtype", "device", "shape", "size", "ndim"})


def own_calls(function: ast.FunctionDef) -> list[str]:
    """Return the attributes of `self` that are called, in the order in which that happens."""
    return [name for statement in function.body for name in _in_turn(statement)]


def _in_turn(node: ast.AST) -> Iterator[str]:
    """Yield the modules called in an expression, inner calls first."""
    for child in ast.iter_child_nodes(node):
        yield from _in_turn(child)
    if isinstance(node, ast.Call) and (name := _own(node.func)):
        yield name


def handed(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Yield the variable that a statement assigns, with each module that it calls."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Return) and node.value is not None:
            target = RETURNED if isinstance(node, ast.Return) else _target(node)
            for name in _in_turn(node.value):
                yield target, name


def _target(node: ast.Assign | ast.AugAssign) -> str:
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _own(node: ast.expr, holder: str = "self") -> str:
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == holder
    return node.attr if own and isinstance(node, ast.Attribute) else ""


def slices(function: ast.FunctionDef, kernel: str, holder: str) -> list[set[str]]:
    """Return the modules on the way to each argument of the one call of a kernel; nothing if there are several."""
    calls = [one for one in ast.walk(function) if isinstance(one, ast.Call) and getattr(one.func, "id", "") == kernel]
    if len(calls) != 1:
        return []
    pairs = sorted(assigned(function), key=lambda pair: pair[1].lineno)
    return [_modules(one, calls[0].lineno, pairs, holder) for one in calls[0].args[:3]]


def _modules(node: ast.expr, line: int, pairs: list[tuple[str, ast.expr]], holder: str) -> set[str]:
    found = {name for one in ast.walk(node) if isinstance(one, ast.Call) and (name := _own(one.func, holder))}
    for name in {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}:
        before = [value for known, value in pairs if known == name and value.lineno < line]
        if before:
            found |= _modules(before[-1], before[-1].lineno, pairs, holder)
    return found


def first_calls(
    function: ast.FunctionDef, arguments: Collection[str], blocks: Mapping[str, str]
) -> dict[str, list[str]]:
    """For each argument, the modules that are the first to be passed what comes of it alone, before the blocks."""
    comes = {name: frozenset({name}) for name in arguments}
    found: dict[str, list[str]] = {}
    done: set[str] = set()
    for node in _statements(function.body):
        if isinstance(node, ast.For) and any(
            isinstance(one, ast.expr) and _own(one) in blocks for one in ast.walk(node.iter)
        ):
            break
        for call in (one for one in ast.walk(node) if isinstance(one, ast.Call)):
            name = _own(call.func)
            if not name or name in blocks:
                continue
            origins = frozenset().union(*(comes.get(one, frozenset()) for given in call.args for one in read(given)))
            passed = any(_own(one.func) for given in call.args for one in ast.walk(given) if isinstance(one, ast.Call))
            if len(origins) == 1 and (argument := next(iter(origins))) not in done and not passed:
                found.setdefault(argument, []).append(name)
        if isinstance(node, ast.Assign | ast.AugAssign):
            origins = frozenset().union(*(comes.get(one, frozenset()) for one in read(node.value)))
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for one in (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)):
                comes[one.id] = origins
        done |= found.keys()
    return {argument: list(dict.fromkeys(names)) for argument, names in found.items()}


def shared_by(function: ast.FunctionDef, arguments: Collection[str]) -> dict[str, set[str]]:
    """Return the modules that are called at several places -> the arguments that the first input of any of these calls
    comes of, by the lines before it.
    """
    pairs = sorted(assigned(function), key=lambda pair: pair[1].lineno)
    calls = sorted((one for one in ast.walk(function) if isinstance(one, ast.Call) and one.args and _own(one.func)),
                   key=lambda call: call.lineno)  # fmt: skip
    comes = {name: {name} for name in arguments}
    found: dict[str, list[set[str]]] = {}
    for call in calls:
        while pairs and pairs[0][1].lineno < call.lineno:
            name, value = pairs.pop(0)
            comes[name] = set().union(*(comes.get(one, ()) for one in read(value)))
        origins = set().union(*(comes.get(one, ()) for one in read(call.args[0])))
        found.setdefault(_own(call.func), []).append(origins)
    return {name: set().union(*origins) for name, origins in found.items() if len(origins) > 1}


def read(node: ast.AST) -> Iterator[str]:
    """Yield the variables whose values an expression computes with: a dtype, a device or a shape is no value."""
    if isinstance(node, ast.Attribute) and node.attr in _SURROUNDINGS:
        return
    if isinstance(node, ast.Name):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from read(child)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements in order, those below conditions as they stand."""
    for node in body:
        if isinstance(node, ast.If | ast.With):
            yield from _statements(node.body)
            yield from _statements(getattr(node, "orelse", []))
        else:
            yield node
