"""Questions about code that several rules ask."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import SourceFile, dotted


def at(source: SourceFile, node: ast.AST, message: str) -> Finding:
    """A finding at a node."""
    return Finding(message, source.path, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)


def decorated(cls: ClassRef, name: str) -> bool:
    """Whether a class carries a decorator, called or not."""
    plain = (one.func if isinstance(one, ast.Call) else one for one in cls.node.decorator_list)
    return any((dotted(one) or "").rpartition(".")[2] == name for one in plain)


def fields(cls: ClassRef) -> dict[str, ast.AnnAssign]:
    """The annotated names in a class body, but for those of the class itself."""
    found = {
        item.target.id: item
        for item in cls.node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    return {name: item for name, item in found.items() if "ClassVar" not in ast.unparse(item.annotation)}


def parameters(function: ast.FunctionDef) -> list[str]:
    """The named parameters after `self`."""
    named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return [one.arg for one in named if one.arg not in ("self", "cls")]


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """A keyword argument of a call."""
    return next((one.value for one in call.keywords if one.arg == name), None)


def last_name(node: ast.AST) -> str:
    """The last part of a dotted name, or of what is called; empty for anything else."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def calls(node: ast.AST, *names: str) -> Iterator[ast.Call]:
    """The calls below a node of functions or methods of these names; of any without names."""
    for item in walked(node):
        if isinstance(item, ast.Call) and (not names or last_name(item.func) in names):
            yield item


def returns(function: ast.FunctionDef) -> list[ast.expr]:
    """What a function returns, but not what functions inside it do."""
    inner = {
        id(node)
        for item in walked(function)
        if item is not function and isinstance(item, (ast.FunctionDef, ast.Lambda))
        for node in walked(item)
    }
    found = [node for node in walked(function) if isinstance(node, ast.Return) and id(node) not in inner]
    return [node.value for node in found if node.value is not None]


def assigned(function: ast.AST, name: str) -> list[ast.expr]:
    """What a plain name is assigned below a node, in the order of the lines."""
    found = []
    for node in walked(function):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and value is not None:
            found += [(node.lineno, value) for one in targets if isinstance(one, ast.Name) and one.id == name]
    return [value for _, value in sorted(found, key=lambda item: item[0])]


def constant(node: ast.AST | None) -> object:
    """The value of a constant; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = constant(node.operand)
        return -inner if isinstance(inner, (int, float)) else None
    return node.value if isinstance(node, ast.Constant) else None
