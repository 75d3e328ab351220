"""Values that code states directly: literals, and attributes read from or set on an object of a name."""

import ast
from collections.abc import Iterator
from typing import Any

from omni_kit.pysource.eval.values import UNKNOWN

_ASKING = ("getattr", "hasattr")


def literal(node: ast.expr | None) -> Any:
    """Return the value of a literal; UNKNOWN for any other expression, and for none."""
    try:
        return UNKNOWN if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return UNKNOWN


def attributes_read(tree: ast.AST, owner: str) -> frozenset[str]:
    """The attributes asked of anything whose name ends so: `config.x`, `self.config.x`, `getattr(text_config, "x")`."""
    return frozenset(_names(tree, owner))


def items_read(function: ast.FunctionDef, argument: str) -> dict[str, bool]:
    """The literal keys under which a function reads an argument that it uses as a mapping, and in no other way.

    Returns:
        key -> whether the mapping must have it: `get` does without. Empty where the argument is used otherwise.
    """
    above = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    found: dict[str, bool] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Name) or node.id != argument:
            continue
        match above[node]:
            case ast.Subscript(slice=ast.Constant(value=str(key)), ctx=ast.Load()):
                found[key] = True
            case ast.Attribute(attr="get") as get:
                match above[get]:
                    case ast.Call(args=[ast.Constant(value=str(key)), *_]):
                        found.setdefault(key, False)
                    case _:
                        return {}
            case _:
                return {}
    return found if all(key.isidentifier() for key in found) else {}


def attributes_set(tree: ast.AST) -> set[str]:
    """The names that are set as `self.name` below a node."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value)
    }


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _names(tree: ast.AST, owner: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is(node.value, owner):
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ASKING:
            match node.args:
                case [asked, ast.Constant(value=str(name)), *_] if _is(asked, owner):
                    yield name


def _is(node: ast.expr, owner: str) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr.endswith(owner)
    return isinstance(node, ast.Name) and node.id.endswith(owner)
