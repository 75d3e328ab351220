"""Tables that a constructor makes are real where a model is made with empty weights, as `from_pretrained` makes it."""

import libcst as cst

from omni_kit.targets.diffusers.porting.syntax import body_of, code, expression, own_attribute
from omni_kit.targets.diffusers.porting.visiting import visited, walk

_DEVICE, _MADE = "device", "__init__"
_REAL = '(self.device if self.device.type != "meta" else torch.get_default_device())'


def with_real_tables(node: cst.ClassDef) -> cst.ClassDef:
    """Return a model whose constructor, and the methods that it calls, make nothing on the device of empty weights.

    A model's device is that of its parameters, which is the meta device before weights are loaded. What is made there
    and is not saved, as positions, stays there.
    """
    methods = {one.name.value: one for one in body_of(node) if isinstance(one, cst.FunctionDef)}
    if _MADE not in methods or _assigns(methods[_MADE]):
        return node
    called = {own_attribute(one.func) for one in walk(methods[_MADE]) if isinstance(one, cst.Call)}
    reached = [methods[name] for name in (_MADE, *sorted(called & methods.keys()))]
    return visited(node, _Real(reached))


def _assigns(init: cst.FunctionDef) -> bool:
    """Return whether a constructor says itself what the device is."""
    return any(isinstance(one, cst.AssignTarget) and own_attribute(one.target) == _DEVICE for one in walk(init))


class _Real(cst.CSTTransformer):
    """A real device for `device=self.device`.

    Args:
        methods: in which it is changed.
    """

    def __init__(self, methods: list[cst.FunctionDef]) -> None:
        self.methods = methods
        self.inside = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:  # noqa: N802
        """Note that code of one of the methods follows."""
        self.inside += any(node is one for one in self.methods)

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:  # noqa: N802
        """Return the method."""
        self.inside -= any(original_node is one for one in self.methods)
        return updated_node

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802
        """Return the argument with the device that is real."""
        named = updated_node.keyword is not None and updated_node.keyword.value == _DEVICE
        placed = self.inside and named and code(updated_node.value) == "self.device"
        return updated_node.with_changes(value=expression(_REAL)) if placed else updated_node
