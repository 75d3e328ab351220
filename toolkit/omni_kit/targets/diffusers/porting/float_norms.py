"""Norms that authors compute in float32: their weights are cast, too, as a model of diffusers is cast as a whole."""

import re
from collections.abc import Mapping

import libcst as cst

from omni_kit.targets.diffusers.porting.parts import Parts
from omni_kit.targets.diffusers.porting.syntax import chain, code, expression
from omni_kit.targets.diffusers.porting.visiting import visited

_FUNCTIONS: Mapping[str, str] = {
    "nn.GroupNorm": "nn.functional.group_norm({x}, self.num_groups, {weight}, {bias}, self.eps)",
    "nn.LayerNorm": "nn.functional.layer_norm({x}, self.normalized_shape, {weight}, {bias}, self.eps)",
}
_SINGLE = re.compile(r"\.float\(\)$|\.(to|type)\((dtype=)?torch\.float32\)$")
_OF_BASE = re.compile(r"^(super\(.*\)|nn\.\w+)\.forward$")


def with_float_norms(parts: Parts) -> None:
    """Cast the weights of norms of the authors' own that call torch's with an input in float32."""
    written = "".join(code(part.node) for part in parts.parts)
    plain = not re.search(r"affine\s*=(?!\s*True)", written)
    for part in parts.parts:
        bases = [chain(one.value) for one in part.cls.bases] if part.cls is not None else []
        if function := next((_FUNCTIONS[one] for one in bases if one in _FUNCTIONS), ""):
            part.node = visited(part.node, _Cast(function, plain))


class _Cast(cst.CSTTransformer):
    """`nn.functional.group_norm(x.float(), ...)` of `super().forward(x.float())`."""

    def __init__(self, function: str, plain: bool) -> None:
        self.function, self.plain = function, plain

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """Return the call of a function where the input is cast."""
        given = [code(one.value) for one in updated_node.args]
        if not _OF_BASE.match(code(updated_node.func)) or given[:-1] not in ([], ["self"]):
            return updated_node
        if not _SINGLE.search(given[-1]):
            return updated_node
        weight, bias = (self._single(f"self.{name}") for name in ("weight", "bias"))
        return expression(self.function.format(x=given[-1], weight=weight, bias=bias))

    def _single(self, name: str) -> str:
        return f"{name}.float()" if self.plain else f"None if {name} is None else {name}.float()"
