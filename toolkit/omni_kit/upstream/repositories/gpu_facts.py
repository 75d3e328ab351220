"""Facts of a GPU that code asks for, and their values on a machine without one."""

import ast
import copy
from collections.abc import Mapping
from contextlib import suppress

from omni_kit.pysource.eval import UNKNOWN, Domain, Unsupported, evaluate

WITHOUT_GPU: Mapping[str, object] = {
    "torch.cuda.is_available": False,
    "torch.cuda.device_count": 0,
    "torch.cuda.is_bf16_supported": False,
    "torch.cuda.current_device": 0,
    "torch.cuda.get_device_capability": (0, 0),
    "torch.cuda.get_device_name": "cpu",
}
"""Functions -> what code that asks for a GPU's facts may take for them where there is none."""

OF_PROPERTIES: Mapping[str, object] = {"major": 0, "minor": 0, "name": "cpu", "total_memory": 0,
                                       "multi_processor_count": 1}  # fmt: skip
"""Attributes of `torch.cuda.get_device_properties(...)` -> the same."""

PROPERTIES = "torch.cuda.get_device_properties"
_RAISE = ("get_device_capability", "get_device_name", "get_device_properties", "current_device")


def needs_gpu(node: ast.AST) -> bool:
    """Return whether a statement or an expression raises where there is no GPU, as it asks for facts of one."""
    text = ast.unparse(node)
    return any(f"cuda.{name}(" in text for name in _RAISE)


def without_gpu(node: ast.expr) -> object:
    """Return the value of an expression that asks for a GPU's facts where there is none; UNKNOWN of any other."""
    facts = _Facts()
    plain = facts.visit(copy.deepcopy(node))
    if facts.found:
        with suppress(Unsupported):
            return evaluate(plain, Domain())
    return UNKNOWN


class _Facts(ast.NodeTransformer):
    """Facts of a GPU as what they are without one."""

    def __init__(self) -> None:
        self.found = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`torch.cuda.get_device_capability()`."""
        self.generic_visit(node)
        name = ast.unparse(node.func)
        return self._stated(WITHOUT_GPU[name], node) if name in WITHOUT_GPU else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """`torch.cuda.get_device_properties(0).major`."""
        of_gpu = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == PROPERTIES
        if of_gpu and node.attr in OF_PROPERTIES:
            return self._stated(OF_PROPERTIES[node.attr], node)
        return self.generic_visit(node)

    def _stated(self, value: object, node: ast.expr) -> ast.AST:
        self.found = True
        return ast.copy_location(ast.parse(repr(value), mode="eval").body, node)
