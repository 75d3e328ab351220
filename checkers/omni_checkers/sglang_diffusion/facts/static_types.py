"""Determine whether an expression is evidently a list, or evidently a tensor."""

import ast
from enum import Enum

from omni_checkers.engine.files import walked
from omni_checkers.sglang_diffusion.facts.requests import Use
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import last_name, returns
from omni_kit.pysource.source import SourceFile, dotted

_DEEPEST = 6
_TENSOR_METHODS = frozenset(
    {"to", "unsqueeze", "squeeze", "repeat", "view", "reshape", "contiguous", "expand", "repeat_interleave", "float"}
    | {"flatten", "permute", "transpose", "clone", "detach", "half", "bfloat16", "cuda", "cpu", "type_as"}
)
_TENSOR_MAKERS = frozenset({"cat", "stack", "zeros", "ones", "randn", "zeros_like", "ones_like", "tensor", "empty"})
_TENSOR_ATTRIBUTES = frozenset({"last_hidden_state", "pooler_output", "text_embeds"})


class Sort(Enum):
    """The type of an expression's value."""

    list = "list"
    tensor = "tensor"
    unknown = "unknown"


def sort_of(use: Use) -> Sort:
    """Return the type of the value that an attribute of a request is set to."""
    if use.value is None or use.function is None:
        return Sort.unknown
    return _sort(use.value, use.source, use.function, use.owner, 0)


def _sort(node: ast.expr, source: SourceFile, function: ast.FunctionDef, cls: ClassRef | None, depth: int) -> Sort:
    if depth > _DEEPEST:
        return Sort.unknown
    match node:
        case ast.List() | ast.ListComp() | ast.Tuple():
            return Sort.list
        case ast.Attribute(attr=name) if name in _TENSOR_ATTRIBUTES:
            return Sort.tensor
        case ast.Subscript(value=ast.Attribute(attr="hidden_states")):
            return Sort.tensor
        case ast.IfExp():
            return _agreed([_sort(one, source, function, cls, depth + 1) for one in (node.body, node.orelse)])
        case ast.Name():
            return _agreed(_of_name(node, source, function, cls, depth))
        case ast.Call():
            return _of_call(node, source, function, cls, depth, None)
    return Sort.unknown


def _of_call(
    node: ast.Call, source: SourceFile, function: ast.FunctionDef, cls: ClassRef | None, depth: int, place: int | None
) -> Sort:
    """Return the sort of a call's result, or of the item of its result at a place."""
    name = last_name(node.func)
    if place is None and isinstance(node.func, ast.Name) and name == "list":
        return Sort.list
    if place is None and isinstance(node.func, ast.Attribute):
        if dotted(node.func.value) == "torch":
            return Sort.tensor if name in _TENSOR_MAKERS else Sort.unknown
        if name in _TENSOR_METHODS:
            return Sort.tensor
    if isinstance(node.func, ast.Attribute) and dotted(node.func.value) == "self" and cls is not None:
        method = cls.method(name)
        found = (method[0].source, method[1]) if method is not None else None
    else:
        found = source.resolve_function(name) if isinstance(node.func, ast.Name) else None
    if found is None:
        return Sort.unknown
    answers = []
    for value in returns(found[1]):
        if place is not None:
            parts = getattr(value, "elts", [])
            if place >= len(parts):
                return Sort.unknown
            value = parts[place]
        answers.append(_sort(value, found[0], found[1], cls, depth + 1))
    return _agreed(answers)


def _of_name(
    node: ast.Name, source: SourceFile, function: ast.FunctionDef, cls: ClassRef | None, depth: int
) -> list[Sort]:
    found = []
    for item in walked(function):
        if isinstance(item, ast.Assign) and item.lineno <= node.lineno:
            for target in item.targets:
                if isinstance(target, ast.Name) and target.id == node.id:
                    found.append((item.lineno, _sort(item.value, source, function, cls, depth + 1)))
                elif isinstance(target, ast.Tuple):
                    found += [
                        (item.lineno, one) for one in _part(target, item.value, node.id, source, function, cls, depth)
                    ]
    return [sort for _, sort in sorted(found, key=lambda one: one[0])][-1:]


def _part(
    target: ast.Tuple, value: ast.expr, name: str, source: SourceFile, function: ast.FunctionDef,
    cls: ClassRef | None, depth: int,
) -> list[Sort]:  # fmt: skip
    places = [place for place, one in enumerate(target.elts) if isinstance(one, ast.Name) and one.id == name]
    if not places:
        return []
    parts = getattr(value, "elts", None)
    if parts is not None and len(parts) == len(target.elts):
        return [_sort(parts[places[0]], source, function, cls, depth + 1)]
    if isinstance(value, ast.Call):
        return [_of_call(value, source, function, cls, depth + 1, places[0])]
    return [Sort.unknown]


def _agreed(sorts: list[Sort]) -> Sort:
    """Return the sort of all; unknown where they differ."""
    return sorts[0] if sorts and all(one is sorts[0] for one in sorts) else Sort.unknown
