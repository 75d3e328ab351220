"""Reads from the code of a forward how many axes and items an argument must have."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from torch import nn

from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import dotted

_DEEP = 3  # methods that pass an argument on to another one
_JOINS = ("cat", "concat", "concatenate", "pack", "stack")
_PATTERNS = ("rearrange", "reduce", "repeat")  # of einops


@lru_cache(maxsize=256)
def tree_of(function: Callable[..., Any]) -> ast.FunctionDef | None:
    """Return the definition of a function; None if its source is not there."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None
    return tree if isinstance(tree, ast.FunctionDef) else None


def picked(function: Callable[..., Any], name: str) -> int:
    """Return the number of items of an argument that a function picks by literal indices."""
    nodes = ast.walk(tree) if (tree := tree_of(function)) is not None else iter(())
    items = (one.slice for one in nodes if isinstance(one, ast.Subscript) and ast.unparse(one.value) == name)
    return len({ast.unparse(one) for one in items if type(literal(one)) is int})


def taken_one_by_one(function: Callable[..., Any]) -> set[str]:
    """Return the variables of a function from which it takes one item after the other: `residuals.pop()`."""
    tree = tree_of(function)
    found: set[str] = set()
    for node in ast.walk(tree) if tree is not None else ():
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="pop"), args=[] | [ast.Constant(value=0 | -1)]
            ):
                found.add(name)
    return found


def joined(function: Callable[..., Any], name: str) -> set[str]:
    """Return the arguments that a function joins with one of them into one tensor: `torch.cat([x, condition], dim=1)`.

    Those that are joined under a condition, and not where it fails, may be left out.
    """
    tree = tree_of(function)
    return _joined_in(tree.body, name) if tree is not None else set()


def _joined_in(body: list[ast.stmt], name: str) -> set[str]:
    found: set[str] = set()
    for statement in _in_order(body):
        if isinstance(statement, ast.If):
            found |= _joined_in(statement.body, name) & _joined_in(statement.orelse, name)
        for call in ast.walk(statement) if not isinstance(statement, ast.If | ast.For | ast.While) else ():
            match call:
                case ast.Call(func=called, args=[ast.List(elts=parts) | ast.Tuple(elts=parts), *_]) if (
                    dotted(called) or ""
                ).rpartition(".")[2] in _JOINS:
                    names = {one.id for one in parts if isinstance(one, ast.Name)}
                    found |= names - {name} if name in names else set()
    return found


def dimensions(
    model: Any, function: Callable[..., Any], name: str, deep: int = _DEEP, *, parts: bool = True
) -> int | None:
    """Return the number of dimensions that code needs an argument to have; None if it does not say.

    It says so where it unpacks the shape, names the axes for einops or permutes them, before it changes the argument;
    also in a method of the model, or in a part of it, that gets the argument.

    Args:
        deep: how many such methods are followed.
        parts: those of parts are.
    """
    tree = tree_of(function)
    for statement in _in_order(tree.body) if tree is not None else ():
        simple = not isinstance(statement, ast.If | ast.For | ast.While | ast.Try | ast.FunctionDef)
        for node in ast.walk(statement) if simple else ():
            found = _stated(node, name)
            if found is None and deep and isinstance(node, ast.Call):
                found = _passed_on(model, node, name, deep - 1, parts)
            if found is not None:
                return found
        if any(isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)
               for one in ast.walk(statement)) and not _only_cast(statement, name):  # fmt: skip
            return None
    return None


def likely_dimensions(function: Callable[..., Any], name: str) -> int | None:
    """Return the number of dimensions that an argument seems to have where forward adds one, `x[:, None, :]`, before it
    changes the argument by more than a layer; None if it does not say.
    """
    tree = tree_of(function)
    for statement in _in_order(tree.body) if tree is not None else ():
        simple = not isinstance(statement, ast.If | ast.For | ast.While | ast.Try | ast.FunctionDef)
        for node in ast.walk(statement) if simple else ():
            match node:
                case ast.Subscript(value=ast.Name(id=owner), slice=ast.Tuple(elts=axes)) if owner == name:
                    whole = [one for one in axes if ast.unparse(one) == ":"]
                    added = [one for one in axes if ast.unparse(one) == "None"]
                    if added and len(whole) > 1 and len(whole) + len(added) == len(axes):
                        return len(whole)
        if any(isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)
               for one in ast.walk(statement)) and not _only_a_layer(statement, name):  # fmt: skip
            return None
    return None


def _in_order(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for one in body:
        if isinstance(one, ast.With):
            yield from _in_order(one.body)
        else:
            yield one


def _stated(node: ast.AST, name: str) -> int | None:
    """Return the number of dimensions that one expression or assignment needs."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
            return _unpacked(names, value, name)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="permute"), args=axes) if owner == name:
            return len(axes) if len(axes) > 1 and all(type(literal(one)) is int for one in axes) else None
        case ast.Call(func=called, args=[ast.Name(id=first), ast.Constant(value=str(pattern)), *_]) if first == name:
            return _axes_in(pattern) if (dotted(called) or "").rpartition(".")[2] in _PATTERNS else None
    return None


def _unpacked(names: list[ast.expr], value: ast.expr, name: str) -> int | None:
    """Return the dimensions of `b, c, h, w = x.shape`, or of `b, c, device = *x.shape, x.device`."""
    if any(isinstance(one, ast.Starred) for one in names):
        return None
    if _is_shape(value, name):
        return len(names)
    if isinstance(value, ast.Tuple):
        stars = [one for one in value.elts if isinstance(one, ast.Starred)]
        if len(stars) == 1 and _is_shape(stars[0].value, name):
            return len(names) - len(value.elts) + 1
    return None


def _is_shape(node: ast.expr, name: str) -> bool:
    return ast.unparse(node) in (f"{name}.shape", f"{name}.size()")


def _axes_in(pattern: str) -> int | None:
    """Return the number of axes on the left of an einops pattern; None if it leaves some open."""
    left, arrow, _ = pattern.partition("->")
    if not arrow or "..." in left or left.count("(") != left.count(")"):
        return None
    grouped = re.sub(r"\([^()]*\)", "group", left)
    return len(grouped.split())


def _passed_on(model: Any, call: ast.Call, name: str, deep: int, parts: bool) -> int | None:
    """Return the dimensions that a method of a model, or the forward of a part of it, needs of the argument that it
    gets.
    """
    attribute = call.func.attr if _is_own(call.func) and isinstance(call.func, ast.Attribute) else ""
    part = getattr(model, attribute, None) if attribute and parts else None
    method = type(part).forward if isinstance(part, nn.Module) else getattr(type(model), attribute, None)
    if not inspect.isfunction(method):
        return None
    names = [*inspect.signature(method).parameters][1:]
    given = [*zip(names, call.args, strict=False), *((one.arg, one.value) for one in call.keywords if one.arg)]
    inner = (other for other, value in given if isinstance(value, ast.Name) and value.id == name)
    owner = part if isinstance(part, nn.Module) else model
    return next(
        (found for other in inner if (found := dimensions(owner, method, other, deep, parts=parts)) is not None), None
    )


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _only_cast(statement: ast.stmt, name: str) -> bool:
    """Return whether a statement changes the type of an argument alone: `x = x.to(dtype)`."""
    match statement:
        case ast.Assign(
            targets=[ast.Name(id=stored)],
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="to" | "float" | "type" | "contiguous")),
        ):
            return stored == owner == name
    return False


def _only_a_layer(statement: ast.stmt, name: str) -> bool:
    """Return whether a statement passes an argument through a layer of the model alone: `x = self.proj(x)`."""
    match statement:
        case ast.Assign(targets=[ast.Name()], value=ast.Call(func=layer, args=[ast.Name(id=owner)])):
            return owner == name and _is_own(layer)
    return False
