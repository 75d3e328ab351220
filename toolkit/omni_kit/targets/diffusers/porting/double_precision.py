"""Numbers that authors compute in float64 on every device: where a device has none, a port computes them in float32."""

import libcst as cst

from omni_kit.targets.diffusers.porting.parts import Parts
from omni_kit.targets.diffusers.porting.syntax import code, expression
from omni_kit.targets.diffusers.porting.visiting import visited

_DOUBLE = frozenset({"torch.float64", "torch.double"})
_DEVICE = ".device"


def with_supported_precision(parts: Parts) -> None:
    """Choose float64 by the device of a tensor that the same call names: MPS and NPU have none."""
    for part in parts.parts:
        part.node = visited(part.node, _ByDevice())


class _ByDevice(cst.CSTTransformer):
    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """Return the call with the dtype that the device has."""
        owner = updated_node.func.value if isinstance(updated_node.func, cst.Attribute) else None
        method = updated_node.func.attr.value if isinstance(updated_node.func, cst.Attribute) else ""
        named = {one.keyword.value: code(one.value) for one in updated_node.args if one.keyword is not None}
        if owner is not None and method == "double" and not updated_node.args and (tensor := _tensor(owner)):
            return expression(f"{code(owner)}.to({_chosen(tensor + _DEVICE)})")
        device = named.get("device", "")
        if owner is not None and method in ("to", "type") and (tensor := _tensor(owner)):
            device = tensor + _DEVICE
        if not device.endswith(_DEVICE):
            return updated_node
        args = [one.with_changes(value=expression(_chosen(device))) if code(one.value) in _DOUBLE else one
                for one in updated_node.args]  # fmt: skip
        return updated_node.with_changes(args=args)


def _tensor(node: cst.BaseExpression) -> str:
    """Return the variable whose device a value has: `x` of `x[:, 0]`; empty if a call makes the value."""
    while isinstance(node, cst.Subscript):
        node = node.value
    inner = node
    while isinstance(inner, cst.Attribute):
        inner = inner.value
    return code(node) if isinstance(inner, cst.Name) and inner.value != "torch" else ""


def _chosen(device: str) -> str:
    return f'torch.float32 if {device}.type in ("mps", "npu") else torch.float64'
