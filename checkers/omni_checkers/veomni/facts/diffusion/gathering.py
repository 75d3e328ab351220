"""Places where a forward gathers a sequence, and whether it removes the padding that made the parts equal."""

import ast

from omni_checkers.engine.files import walked
from omni_checkers.veomni.facts.diffusion.sharing import SLICES, sliced
from omni_kit.pysource.nodes import argument, calls, last_name, names_in

_BLOCKS = ("blocks", "layers")
_CUTS = ("narrow", "narrow_copy", "unpad_tensor", "index_select", "split", "split_with_sizes", "tensor_split")


def computed_again(node: ast.FunctionDef, call: ast.Call) -> bool:
    """Return whether a call stands in a function that receives to checkpointing."""
    handed = {
        name
        for one in calls(node, "_gradient_checkpointing_func", "checkpoint")
        for name in (names_in(one.args[0]) if one.args else ())
    }
    inner = [n for n in walked(node)[1:] if isinstance(n, (ast.FunctionDef, ast.Lambda))]
    named = [n for n in inner if isinstance(n, ast.FunctionDef) and n.name in handed]
    direct = [
        one.args[0]
        for one in calls(node, "_gradient_checkpointing_func", "checkpoint")
        if one.args and isinstance(one.args[0], ast.Lambda)
    ]
    return any(call in walked(n) for n in [*named, *direct])


def on_another_dimension(node: ast.FunctionDef, call: ast.Call) -> bool:
    """Return whether the gathered value was sliced, under this name, on another dimension."""
    value, dim = argument(call, 0, "x"), argument(call, 1, "gather_dim")
    if not isinstance(value, ast.Name) or not isinstance(dim, ast.Constant):
        return False
    dims = {one for part, one, _ in sliced(node) if isinstance(part, ast.Name) and part.id == value.id}
    return bool(dims) and None not in dims and dim.value not in dims


def in_block_loop(node: ast.FunctionDef, call: ast.Call) -> bool:
    """Return whether a call stands in the loop over the blocks."""
    return any(
        isinstance(item, ast.For) and any(word in ast.unparse(item.iter) for word in _BLOCKS) and call in walked(item)
        for item in walked(node)
    )


def pads(node: ast.FunctionDef) -> bool:
    """Return whether slicing pads: VeOmni's own function does unless its arguments forbid it."""
    own = list(calls(node, *SLICES))
    return any(
        ast.unparse(argument(call, 2, "padding") or ast.Constant(True)) != "False"
        for call in own
        if last_name(call) != SLICES[1]
    )


def is_cut(node: ast.FunctionDef, call: ast.Call) -> bool:
    """Return whether the gathered value is cut to length, at once or later."""
    if argument(call, 3, "unpad_dim_size") is not None or argument(call, 2, "padding_dim") is not None:
        return True
    return any(_cuts(item) for item in walked(node) if (getattr(item, "end_lineno", 0) or 0) >= call.lineno)


def _cuts(item: ast.AST) -> bool:
    """Return whether an expression takes a part of a tensor: a slice with an end, or an operation that has a length."""
    if isinstance(item, ast.Subscript):
        return any(isinstance(n, ast.Slice) and n.upper is not None for n in walked(item.slice))
    return isinstance(item, ast.Call) and last_name(item) in _CUTS
