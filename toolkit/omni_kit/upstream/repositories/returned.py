"""Forms of what a forward returns, as its authors wrote it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import dotted
from omni_kit.upstream.repositories.reference import Reference

TENSOR, TUPLE, LIST, OBJECT, MAPPING = "tensor", "tuple", "list", "object", "mapping"


@dataclass(frozen=True)
class Returned:
    """The output of a forward, as its last `return` has it.

    Attributes:
        form: a tensor, a tuple, a list, an object or a mapping.
        count: the number of values of the largest tuple.
        keys: those of a mapping, that of the prediction first.
    """

    form: str = TENSOR
    count: int = 1
    keys: tuple[str, ...] = ()


def returned(reference: Reference) -> Returned:
    """Return what the forward of a class returns."""
    found = reference.cls.method("forward")
    return returned_by(found[1]) if found is not None else Returned()


def returned_by(function: ast.FunctionDef) -> Returned:
    """Return what a function returns."""
    returns = [one for one in ast.walk(function) if isinstance(one, ast.Return)]
    nodes = [one.value for one in sorted(returns, key=lambda one: one.lineno)]  # as written, not by depth
    last = nodes[-1] if nodes else None
    count = max((len(one.elts) for one in nodes if isinstance(one, ast.Tuple)), default=1)
    if isinstance(last, ast.Tuple):
        return Returned(TUPLE, len(last.elts))
    if isinstance(last, ast.List | ast.ListComp):
        return Returned(LIST, count)
    if last is not None and (keys := tuple(dict.fromkeys(_keys(last, function)))):
        return Returned(MAPPING, count, keys)
    named = ast.unparse(last.func) if isinstance(last, ast.Call) else ""
    return Returned(OBJECT if named.endswith("Output") else TENSOR, count)


def _keys(value: ast.expr, function: ast.FunctionDef) -> Iterator[str]:
    """Yield the keys of a mapping that is written out, or that statements fill; of those the last one first."""
    if isinstance(value, ast.Dict):
        yield from (key for one in value.keys if one is not None and isinstance(key := literal(one), str))
    elif isinstance(value, ast.Call) and dotted(value.func) == "dict":
        yield from (one.arg for one in value.keywords if one.arg)
    elif isinstance(value, ast.Name):
        yield from (key for node in reversed(function.body) for key in _filled(node, value.id))
        nodes = [node for node in ast.walk(function) if isinstance(node, ast.stmt)]
        yield from (key for node in nodes for key in _filled(node, value.id))
        made = (one.value for one in nodes if isinstance(one, ast.Assign) and dotted(one.targets[0]) == value.id)
        yield from (key for one in made if not isinstance(one, ast.Name) for key in _keys(one, function))


def _filled(node: ast.stmt, name: str) -> Iterator[str]:
    """Yield the key under which a statement puts something into a mapping: `out["x"] = x`."""
    match node:
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str(key)))]):
            if owner == name:
                yield key
