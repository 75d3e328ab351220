"""Which attributes code asks of something, by what it calls it, and which it sets."""

import ast
from collections.abc import Iterator

_ASKING = ("getattr", "hasattr")


def attributes_read(tree: ast.AST, owner: str) -> frozenset[str]:
    """The attributes asked of anything whose name ends so: `config.x`, `self.config.x`, `getattr(text_config, "x")`."""
    return frozenset(_names(tree, owner))


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
