"""Statements of a pipeline as statements of a block: `self` becomes `components`, names that cross become state."""

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

import libcst as cst

from omni_kit.pysource.names import own_names
from omni_kit.targets.diffusers.modular.names import tree
from omni_kit.targets.diffusers.modular.pipeline_class import Method
from omni_kit.targets.diffusers.porting.syntax import own_attribute
from omni_kit.targets.diffusers.porting.visiting import Node

STATE, COMPONENTS = "block_state", "components"
_SCOPES = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp, cst.Lambda, cst.FunctionDef)


@dataclass(frozen=True)
class Rewrite:
    """Settings of a rewrite.

    Attributes:
        crossing: names that are the state's.
        method: finds a method of the pipeline that becomes a function; None for other attributes.
        kept: attributes of `self` that stay.
        left: whether a statement is left out, where it stands in another.
    """

    crossing: frozenset[str] = frozenset()
    method: Callable[[str], Method | None] = field(default=lambda name: None)
    kept: frozenset[str] = frozenset()
    left: Callable[[cst.CSTNode], bool] = field(default=lambda node: False)


def rewritten(node: Node, told: Rewrite) -> Node:
    """Return a statement as a block has it; nothing else of it changes."""
    return node.visit(_Rewriter(told))  # type: ignore[return-value]


class _Rewriter(cst.CSTTransformer):
    def __init__(self, told: Rewrite) -> None:
        self._told = told
        self._bound: list[frozenset[str]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, _SCOPES):
            self._bound.append(_own(node) - {"self"})
        return super().on_visit(node)

    def on_leave(self, original_node, updated_node):  # type: ignore[no-untyped-def]
        found = super().on_leave(original_node, updated_node)
        if isinstance(original_node, _SCOPES):
            self._bound.pop()
        return found

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:  # noqa: N802
        name = updated_node.value
        if any(name in bound for bound in self._bound):
            return updated_node
        if name == "self":
            return cst.Name(COMPONENTS)
        return cst.Attribute(cst.Name(STATE), updated_node) if name in self._told.crossing else updated_node

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        name = own_attribute(original_node)
        if name in self._told.kept:
            return original_node
        method = self._told.method(name) if name else None
        if method is None or method.is_property:
            return updated_node.with_changes(attr=original_node.attr)
        bound = "" if method.static else f".__get__({COMPONENTS})"
        return cst.parse_expression(f"{name}{bound}")

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        return cst.RemoveFromParent() if self._told.left(original_node) else updated_node

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Param(self, original_node: cst.Param, updated_node: cst.Param) -> cst.Param:  # noqa: N802
        own = original_node.name.value == "self"
        return updated_node.with_changes(name=cst.Name(COMPONENTS) if own else original_node.name)

    def leave_ImportAlias(  # noqa: N802
        self, original_node: cst.ImportAlias, updated_node: cst.ImportAlias
    ) -> cst.ImportAlias:
        return original_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        if isinstance(original_node.func, cst.Name) and original_node.func.value == "locals":
            return cst.Name(STATE)
        name = own_attribute(original_node.func)
        method = self._told.method(name) if name and name not in self._told.kept else None
        if method is None or method.is_property:
            return updated_node
        if method.static:
            return updated_node.with_changes(func=cst.Name(name))
        first = cst.Arg(cst.Name(COMPONENTS))
        if updated_node.args:
            space: cst.BaseParenthesizableWhitespace = cst.SimpleWhitespace(" ")
            if isinstance(updated_node.whitespace_before_args, cst.ParenthesizedWhitespace):
                space = updated_node.whitespace_before_args
            first = first.with_changes(comma=cst.Comma(whitespace_after=space))
        return updated_node.with_changes(func=cst.Name(name), args=[first, *updated_node.args])


def _own(node: cst.CSTNode) -> frozenset[str]:
    """Return the names that a scope in an expression or a nested function binds."""
    if isinstance(node, cst.FunctionDef):
        return own_names(tree(node).body[0])
    return own_names(ast.parse(f"({cst.Module([]).code_for_node(node)})", mode="eval").body)
