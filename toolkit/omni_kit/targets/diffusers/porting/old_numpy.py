"""Names that NumPy has no longer, as those that every version has."""

import libcst as cst

from omni_kit.targets.diffusers.porting.parts import Parts
from omni_kit.targets.diffusers.porting.visiting import visited
from omni_kit.upstream.repositories.old_numpy import NUMPY, RENAMED, TYPES

_MATH = "math"


def with_present_numpy(parts: Parts) -> None:
    """Replace `np.product` by `np.prod`, `np.int` by `int`, and `np.math.sqrt` by `math.sqrt`."""
    heads = {line.split()[-1] for line in parts.imports if line.split()[:2] == ["import", NUMPY]}
    renaming = _Present(heads)
    for part in parts.parts if heads else ():
        part.node = visited(part.node, renaming)
    parts.imports += [f"import {_MATH}"] if renaming.needs_math else []


class _Present(cst.CSTTransformer):
    """Attributes of NumPy under present names.

    Args:
        heads: what NumPy is called in the file.
    """

    def __init__(self, heads: set[str]) -> None:
        self.heads = heads
        self.needs_math = False

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """Return an attribute of NumPy as every version has it."""
        owner, name = updated_node.value, updated_node.attr.value
        if not isinstance(owner, cst.Name) or owner.value not in self.heads:
            return updated_node
        self.needs_math |= name == _MATH
        if name in (*TYPES, _MATH):
            return cst.Name(name)
        return updated_node.with_changes(attr=cst.Name(RENAMED.get(name, name)))
