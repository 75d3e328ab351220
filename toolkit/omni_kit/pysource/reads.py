"""Values that code states directly: literals, and attributes read from or set on an object of a name."""

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from omni_kit.pysource.eval.values import UNKNOWN
from omni_kit.pysource.source import dotted

_ASKING = ("getattr", "hasattr")


def literal(node: ast.expr | None) -> Any:
    """Return the value of a literal; UNKNOWN for any other expression, and for none."""
    try:
        return UNKNOWN if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return UNKNOWN


def attributes_read(tree: ast.AST, owner: str) -> frozenset[str]:
    """Return the attributes asked of anything whose name ends so: `config.x`, `self.config.x`, `getattr(text_config,
    "x")`.
    """
    return frozenset(_names(tree, owner))


def field_read(node: ast.AST, holder: str) -> tuple[str, ast.expr | None] | None:
    """Return the field that an expression reads from a holder by a literal name, and its default; None for others.

    These read one: `holder.x`, `holder["x"]`, `holder.get("x", default)` and `getattr(holder, "x", default)`.

    Args:
        holder: a dotted name, or an item of one as `ast.unparse` writes it.
    """
    rest: list[ast.expr] = []
    match node:
        case ast.Call(
            func=ast.Attribute(value=held, attr="get"), args=[ast.Constant(value=str(name)), *rest], keywords=[]
        ):
            pass
        case ast.Call(func=ast.Name(id="getattr"), args=[held, ast.Constant(value=str(name)), *rest], keywords=[]):
            pass
        case ast.Subscript(value=held, slice=ast.Constant(value=str(name))) | ast.Attribute(value=held, attr=name):
            pass
        case _:
            return None
    own = (ast.unparse(held) if "[" in holder else dotted(held)) == holder
    return (name, rest[0] if rest else None) if own else None


def items_read(function: ast.FunctionDef, argument: str) -> dict[str, bool]:
    """Return the literal keys under which a function reads or sets an argument that it uses as a mapping, and in no
    other way.

    Returns:
        key -> whether the mapping must have it: `get`, a test whether it is there, and what one branch alone reads, do
        without. Empty if the argument is used otherwise.
    """
    above = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    found: dict[str, bool] = {}
    tested: set[str] = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Name) or node.id != argument:
            continue
        parent = above[node]
        read = above[parent] if isinstance(parent, ast.Attribute) else parent
        if key := item_tested(above.get(read) if isinstance(read, ast.Call) else read, argument):
            tested.add(key)
            continue
        field = field_read(read, argument)
        if field is None or isinstance(parent, ast.Call):
            return {}
        if isinstance(read, ast.Subscript) and isinstance(read.ctx, ast.Del):
            return {}
        needs = isinstance(read, ast.Subscript) and isinstance(read.ctx, ast.Load) and not _in_branch(read, above)
        found[field[0]] = found.get(field[0], False) or needs
    found |= dict.fromkeys(tested, False)
    return found if all(key.isidentifier() for key in found) else {}


def _in_branch(node: ast.AST, above: Mapping[ast.AST, ast.AST]) -> bool:
    """Return whether a node runs only if a condition holds."""
    while (parent := above.get(node)) is not None:
        if isinstance(parent, ast.If | ast.IfExp) and node is not parent.test:
            return True
        node = parent
    return False


def item_tested(node: ast.AST | None, holder: str) -> str:
    """Return the key of a test whether a mapping has it: `"text" in y`, or `y.keys()`; empty for anything else."""
    match node:
        case ast.Compare(left=ast.Constant(value=str(key)), ops=[ast.In() | ast.NotIn()], comparators=[held]):
            return key if ast.unparse(held) in (holder, f"{holder}.keys()") else ""
    return ""


def attributes_set(tree: ast.AST) -> set[str]:
    """Return the names that are set as `self.name` below a node."""
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
