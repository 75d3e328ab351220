"""Fingerprints of code, its text, and the names in it."""

import ast
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeVar

from omni_checkers.engine.files import remembered, walked, within
from omni_kit.pysource.source import dotted

Answer = TypeVar("Answer")
OPERATORS = (ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
"""Nodes whose type is all that they say."""
_UNCOMPARED = {"ctx", "kind", "type_comment"}
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    kind: tuple(name for name in kind._fields if name not in _UNCOMPARED)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
_numbers: dict[tuple[object, ...], int] = {}
_sizes: list[int] = []


def fingerprint(node: ast.AST) -> int:
    """Return a number that nodes share if they are the same code; valid in this process.

    Layout and the contexts of names do not count, nor does it whether an expression is a statement.
    """
    fields = node.__dict__
    known: int | None = fields.get("_fingerprint")
    if known is None:
        known = fields["_fingerprint"] = _fingerprint(node)
    return known


def _fingerprint(node: ast.AST) -> int:
    kind, fields = type(node), node.__dict__
    parts: Sequence[object]
    if kind is ast.Name:
        parts = (fields["id"],)
    elif kind is ast.Attribute:
        parts = (fingerprint(fields["value"]), fields["attr"])
    elif kind is ast.Constant:
        parts = (repr(fields["value"]),)  # 1, 1.0 and True are equal, and are not the same code
    elif kind is ast.Expr:
        return fingerprint(fields["value"])
    else:
        parts = [_part(fields.get(name)) for name in _FIELDS[kind]]
    key = (kind, *parts)
    number = _numbers.get(key)
    if number is None:
        number = _numbers[key] = len(_sizes)
        _sizes.append(1 + sum(_size(part) for part in parts))
    return number


def _part(part: object) -> object:
    """Return what a field adds to a fingerprint: numbers stand for nodes alone."""
    if part is None:
        return None
    kind = type(part)
    if kind is list:
        return tuple([_part(one) for one in part])  # type: ignore[attr-defined]
    if kind is str:
        return part
    return fingerprint(part) if isinstance(part, ast.AST) else repr(part)


def _size(part: object) -> int:
    if type(part) is int:
        return _sizes[part]
    return sum(map(_size, part)) if type(part) is tuple else 0


def size_of(node: ast.AST) -> int:
    """Return the number of nodes in code."""
    return _sizes[fingerprint(node)]


def by_code(function: Callable[[ast.AST], Answer]) -> Callable[[ast.AST], Answer]:
    """Make a function remember its result for all nodes that are the same code."""
    answers: dict[int, Answer] = {}

    @wraps(function)
    def asked(node: ast.AST) -> Answer:
        code = fingerprint(node)
        if code not in answers:
            answers[code] = function(node)
        return answers[code]

    return asked


@by_code
def unparse_cached(node: ast.AST) -> str:
    """Return the text of a node, whatever its layout."""
    return type(node).__name__ if isinstance(node, OPERATORS) else dotted(node) or ast.unparse(node)


@by_code
def names_read(node: ast.AST) -> frozenset[str]:
    """Return the local names whose values code reads."""
    found = {inner.id for inner in within(node, ast.Name) if isinstance(inner.ctx, ast.Load)}
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        found.add(node.target.id)
    return frozenset(found)


@by_code
def names_set(node: ast.AST) -> frozenset[str]:
    """Return the local names that a statement sets, or changes by a method that ends in an underscore."""
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), method))) if method.endswith("_"):
            return frozenset({name})
        case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
            return names_stored(node)
    return frozenset()


@by_code
def leaves(node: ast.AST) -> list[tuple[str, str]]:
    """Return what code is made of, in the order of `ast.walk`: types of nodes, each with its name or constant."""
    return [(type(inner).__name__, _named(inner)) for inner in walked(node)]


def _named(node: ast.AST) -> str:
    match node:
        case ast.Name(name) | ast.Attribute(_, name):
            return name
        case ast.keyword(name):
            return name or "**"
        case ast.Constant(value):
            return repr(value)
    return ""


@remembered
def names_stored(node: ast.AST) -> frozenset[str]:
    """Return every name that code stores to, at any depth."""
    return frozenset(inner.id for inner in within(node, ast.Name) if isinstance(inner.ctx, ast.Store))


def name_updated(node: ast.AST) -> str:
    """Return the name whose new value a statement computes from its old one; "" for other statements."""
    match node:
        case ast.AugAssign(ast.Name(name)):
            return name
        case ast.Assign([ast.Name(name)], value) if name in names_read(value):
            return name
    return ""


def depend(first: ast.AST, second: ast.AST) -> bool:
    """Return whether the order of two statements matters."""
    sets, reads = (names_set(first), names_set(second)), (names_read(first), names_read(second))
    return bool(sets[0] & reads[1] or sets[1] & reads[0] or sets[0] & sets[1])


def parameters(function: ast.FunctionDef) -> set[str]:
    """Return the names of a function's parameters, without `*args` and `**kwargs`."""
    arguments = function.args
    return {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}


def names_known(function: ast.FunctionDef) -> set[str]:
    """Return every name that a function mentions, and its parameters."""
    return {node.id for node in within(function, ast.Name)} | parameters(function)


def unpacks(call: ast.Call) -> bool:
    """Return whether a call has `*` or `**` arguments."""
    return any(one.arg is None for one in call.keywords) or any(isinstance(one, ast.Starred) for one in call.args)
