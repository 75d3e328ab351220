"""Whether a detector of a registration says yes to a name, without running it."""

import ast
from collections.abc import Mapping
from typing import Any

from omni_checkers.sglang_diffusion.facts.registering import Registration
from omni_kit.pysource.source import SourceFile

_SAME = {"lower", "strip", "casefold"}


class _Unknown(Exception):
    """Something in the detector is not followed."""


def detects(registration: Registration, name: str) -> bool:
    """Whether one of the detectors says yes to a name in small letters; what cannot be followed says no."""
    listed = registration.given.get("model_detectors")
    for item in getattr(listed, "elts", []):
        try:
            if _call(registration.source, item, name):
                return True
        except _Unknown:
            continue
    return False


def _call(source: SourceFile, detector: ast.expr, name: str) -> bool:
    if isinstance(detector, ast.Lambda) and len(detector.args.args) == 1:
        return bool(_value(detector.body, {detector.args.args[0].arg: name}))
    found = source.resolve_function(detector.id) if isinstance(detector, ast.Name) else None
    if found is None or len(found[1].args.args) != 1:
        raise _Unknown
    known: dict[str, Any] = {found[1].args.args[0].arg: name}
    for statement in found[1].body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            known[statement.targets[0].id] = _value(statement.value, known)
        elif isinstance(statement, ast.Return) and statement.value is not None:
            return bool(_value(statement.value, known))
        elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
            raise _Unknown
    raise _Unknown


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name() if node.id in known:
            return known[node.id]
        case ast.Tuple() | ast.List() | ast.Set():
            return [_value(item, known) for item in node.elts]
        case ast.BoolOp():
            values = (bool(_value(item, known)) for item in node.values)
            return all(values) if isinstance(node.op, ast.And) else any(values)
        case ast.UnaryOp(op=ast.Not()):
            return not _value(node.operand, known)
        case ast.Compare(ops=[op], comparators=[other]):
            return _compared(op, _value(node.left, known), _value(other, known))
        case ast.Call(func=ast.Name(id="any" | "all" as which), args=[ast.GeneratorExp(generators=[loop]) as made]):
            items = [
                bool(_value(made.elt, {**known, getattr(loop.target, "id", ""): item}))
                for item in _value(loop.iter, known)
            ]
            return any(items) if which == "any" else all(items)
        case ast.Call(func=ast.Attribute(value=owner, attr=name)):
            return _method(_value(owner, known), name, [_value(one, known) for one in node.args])
    raise _Unknown


def _compared(op: ast.cmpop, one: Any, two: Any) -> bool:
    match op:
        case ast.In():
            return one in two
        case ast.NotIn():
            return one not in two
        case ast.Eq():
            return bool(one == two)
        case ast.NotEq():
            return bool(one != two)
    raise _Unknown


def _method(owner: Any, name: str, given: list[Any]) -> Any:
    if isinstance(owner, str) and name in _SAME | {"startswith", "endswith", "replace"}:
        return getattr(owner, name)(*(tuple(one) if isinstance(one, list) else one for one in given))
    raise _Unknown
