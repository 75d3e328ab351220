"""A pipeline's statements with a guider: what replaces its formula, and where scales are read from."""

import ast
from collections.abc import Mapping, Sequence

import libcst as cst

from omni_kit.pysource.source import dotted
from omni_kit.targets.diffusers.modular.names import tree
from omni_kit.upstream.diffusers.guiders import COMPONENT, SCALE


class Stead(cst.CSTTransformer):
    """Puts statements instead of others."""

    def __init__(self, others: Sequence[cst.CSTNode], code: Sequence[cst.CSTNode]) -> None:
        self.others = others
        self.code = code

    def on_leave(self, original_node, updated_node):  # type: ignore[no-untyped-def]
        """The statements for the first, and nothing for the rest."""
        if original_node is self.others[0]:
            return cst.FlattenSentinel(self.code)
        if any(original_node is one for one in self.others):
            return cst.RemoveFromParent()
        return super().on_leave(original_node, updated_node)


class ByGuider(cst.CSTTransformer):
    """Reads scales of guiders; a variable that is one of several scales becomes the guider that has it."""

    def __init__(self, chosen: str, scales: Mapping[str, str]) -> None:
        self.places = {arg: f"self.{name}.{SCALE}" for arg, name in scales.items()}
        self.chosen = chosen
        self.guiders = {arg: f"self.{name}" for arg, name in scales.items()}
        self.more = {arg for arg, name in scales.items() if name != COMPONENT}
        self.checked = 0

    def visit_Call(self, node: cst.Call) -> None:  # noqa: N802
        """Collect the calls that check arguments, because the other scales are no longer arguments."""
        self.checked += _checks(node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: N802
        """Behind it they are read again."""
        self.checked -= _checks(original_node)
        return updated_node

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If | cst.RemovalSentinel:  # noqa: N802
        """Remove the replacement of an omitted scale: a guider has one."""
        body = tree(original_node).body[0]
        stored = {dotted(node.targets[0]) for node in getattr(body, "body", ()) if isinstance(node, ast.Assign)}
        return cst.RemoveFromParent() if stored and stored <= self.more else updated_node

    def leave_Param(self, original_node: cst.Param, updated_node: cst.Param) -> cst.Param | cst.RemovalSentinel:  # noqa: N802
        """The argument is gone: the guider has it."""
        return cst.RemoveFromParent() if original_node.name.value in self.places else updated_node

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802
        """The name of an argument stays."""
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:  # noqa: N802
        """Keep the name of an attribute."""
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:  # noqa: N802
        """Return the scale."""
        if updated_node.value == self.chosen:
            return cst.Name(self.chosen.replace(SCALE, COMPONENT))
        if self.checked and updated_node.value in self.more:
            return cst.Name("None")
        place = self.places.get(updated_node.value)
        return cst.parse_expression(place) if place else updated_node

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:  # noqa: N802
        """Choose the guider where upstream chooses a scale."""
        value, target = original_node.value, original_node.targets[0].target
        own = isinstance(target, cst.Name) and target.value == self.chosen and isinstance(value, cst.Name)
        guider = self.guiders.get(value.value) if own and isinstance(value, cst.Name) else None
        return updated_node.with_changes(value=cst.parse_expression(guider)) if guider else updated_node


def _checks(node: cst.Call) -> bool:
    name = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
    return name.startswith("check")
