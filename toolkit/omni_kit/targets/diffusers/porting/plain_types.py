"""Tests for types of packages that diffusers does not need: no argument of the model has such a type."""

import libcst as cst

from omni_kit.targets.diffusers.porting.parts import Parts, WithoutImports
from omni_kit.targets.diffusers.porting.syntax import chain
from omni_kit.targets.diffusers.porting.tidying import NEVER, WithoutUnreachable
from omni_kit.targets.diffusers.porting.visiting import visited, walk
from omni_kit.upstream.diffusers.requirements import importable


def without_foreign_types(parts: Parts) -> None:
    """Decide these tests and remove what depends on them: `if type(width) == ListConfig: width = list(width)`.

    The values of a config are JSON's, and what a pipeline passes comes from torch or Python.
    """
    at_top = {name for line in parts.imports for name in _foreign(cst.parse_module(line))}
    for part in parts.parts:
        inside = _foreign(part.node)
        names = at_top | inside
        if names and any(isinstance(one, cst.Name) and one.value in names for one in walk(part.node)):
            node = visited(part.node, _Decided(names), WithoutUnreachable())
            others = [] if isinstance(node, cst.FunctionDef | cst.ClassDef) else [  # a `try` binds names for the file
                other.node for other in parts.parts if other is not part]  # fmt: skip
            before, now = (_read([visited(one, WithoutImports(inside)), *others]) for one in (part.node, node))
            part.node = visited(node, WithoutImports(inside & before - now))


def _read(nodes: list[cst.BaseStatement]) -> set[str]:
    return {one.value for node in nodes for one in walk(node) if isinstance(one, cst.Name)}


def _foreign(node: cst.CSTNode) -> set[str]:
    """Return the names that `from` imports bind to members of packages that diffusers does not need."""
    found = [one for one in walk(node) if isinstance(one, cst.ImportFrom) and not one.relative]
    foreign = [one for one in found if one.module is not None and _package(one.module) not in importable()]
    aliases = [alias for one in foreign if not isinstance(one.names, cst.ImportStar) for alias in one.names]
    return {one.evaluated_alias or one.evaluated_name for one in aliases}


def _package(module: cst.BaseExpression) -> str:
    return chain(module).partition(".")[0]


class _Decided(cst.CSTTransformer):
    """Decides the tests."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """`isinstance(x, ListConfig)`, and `isinstance(x, (list, ListConfig))`."""
        if chain(updated_node.func) != "isinstance" or len(updated_node.args) != 2:
            return updated_node
        types = updated_node.args[1].value
        if self._is_foreign(types):
            return NEVER
        if not isinstance(types, cst.Tuple):
            return updated_node
        kept = [one.value for one in types.elements if not self._is_foreign(one.value)]
        if len(kept) == len(types.elements):
            return updated_node
        if not kept:
            return NEVER
        left = kept[0] if len(kept) == 1 else cst.Tuple([cst.Element(one) for one in kept])
        return updated_node.with_changes(args=[updated_node.args[0], cst.Arg(left)])

    def leave_Comparison(  # noqa: N802
        self, original_node: cst.Comparison, updated_node: cst.Comparison
    ) -> cst.BaseExpression:
        """`type(x) == ListConfig`."""
        only = updated_node.comparisons[0] if len(updated_node.comparisons) == 1 else None
        if only is None or not isinstance(only.operator, cst.Equal | cst.Is) or not self._is_foreign(only.comparator):
            return updated_node
        left = updated_node.left
        return NEVER if isinstance(left, cst.Call) and chain(left.func) == "type" else updated_node

    def leave_BooleanOperation(  # noqa: N802
        self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation
    ) -> cst.BaseExpression:
        """`False or x` is `x`; with `and` it is `False`."""
        sides = (updated_node.left, updated_node.right)
        if not any(one.deep_equals(NEVER) for one in sides):
            return updated_node
        if isinstance(updated_node.operator, cst.And):
            return NEVER
        return next((one for one in sides if not one.deep_equals(NEVER)), NEVER)

    def _is_foreign(self, node: cst.BaseExpression) -> bool:
        return _package(node) in self.names
