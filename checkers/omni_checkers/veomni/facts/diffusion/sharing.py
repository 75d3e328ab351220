"""Sharding of a sequence in a forward: its slices and its gathers."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_checkers.engine.files import walked, within
from omni_checkers.veomni.facts.diffusion.flows import Flows
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import argument, calls, last_name, names_in, operand

SLICES = ("slice_input_tensor", "slice_input_tensor_scale_grad", "sp_pad_and_slice")
GATHERS = ("gather_outputs", "sp_gather_seqs")
_CHUNKS = ("chunk", "tensor_split", "split")
_PARTS = ("narrow", "narrow_copy", "index_select")
_RANK = ("ulysses_rank", "sp_rank", "rank")


@dataclass(frozen=True)
class Split:
    """One entry of `_cp_plan` that splits.

    Attributes:
        module: where, "" for the model's own arguments, "rope", "blocks.0", "blocks.*".
        name: the argument, or the number of the output.
        dim: the dimension; None if it is not plain.
    """

    module: str
    name: str
    dim: int | None
    output: bool


def plan_of(upstream: ClassRef) -> list[Split]:
    """Return diffusers' context-parallel plan of a class; empty if it has no readable plan."""
    found = upstream.assigned("_cp_plan")
    node = found[1] if found is not None else None
    return list(_splits(node)) if isinstance(node, ast.Dict) else []


def _splits(node: ast.Dict) -> Iterator[Split]:
    for key, value in zip(node.keys, node.values, strict=True):
        module = key.value if isinstance(key, ast.Constant) else None
        for inner, entry in zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ():
            if isinstance(module, str) and isinstance(inner, ast.Constant) and isinstance(entry, ast.Call):
                output = argument(entry, 2, "split_output")
                dim = argument(entry, 0, "split_dim")
                number = dim.value if isinstance(dim, ast.Constant) and isinstance(dim.value, int) else None
                split = isinstance(output, ast.Constant) and output.value is True
                yield Split(module, str(inner.value), number, split)


def sliced(node: ast.FunctionDef) -> Iterator[tuple[ast.expr, int | None, int]]:
    """(expression, dimension, line) of all that a function slices."""
    for call in calls(node, *SLICES):
        value, dim = argument(call, 0, "x") or argument(call, 0, "tensor"), argument(call, 1, "dim")
        if value is not None:
            yield value, _number(dim), call.lineno
    flows = Flows(node)
    for part in within(node, ast.Subscript):
        if (found := _part(flows, part)) is not None:
            yield *found, part.lineno
    for call in within(node, ast.Call):
        if (found := _narrowed(flows, call)) is not None:
            yield *found, call.lineno


def _part(flows: Flows, item: ast.Subscript) -> tuple[ast.expr, int | None] | None:
    """Return the tensor and dimension of a subscript by the rank: a slice, or one of several chunks."""
    parts = item.slice.elts if isinstance(item.slice, ast.Tuple) else [item.slice]
    by_rank = [number for number, part in enumerate(parts) if _uses_rank(flows, part, item.lineno)]
    if any(isinstance(parts[number], ast.Slice) for number in by_rank):
        return item.value, by_rank[0]
    if by_rank and isinstance(item.value, ast.Call) and last_name(item.value) in _CHUNKS:
        tensor, first = operand(item.value)
        return (tensor, _number(argument(item.value, first + 1, "dim"))) if tensor is not None else None
    return None


def _narrowed(flows: Flows, call: ast.Call) -> tuple[ast.expr, int | None] | None:
    """Return the tensor and dimension that a call takes the rank's part from."""
    if last_name(call) not in _PARTS:
        return None
    tensor, first = operand(call)
    start = next((found for name in ("start", "index") if (found := argument(call, first + 1, name))), None)
    if tensor is None or start is None or not _uses_rank(flows, start, call.lineno):
        return None
    return tensor, _number(argument(call, first, "dim"))


def gathered(node: ast.AST) -> list[ast.Call]:
    """The calls below a node that bring a sequence together again."""
    return [call for call in calls(node) if last_name(call) in GATHERS]


def _uses_rank(flows: Flows, part: ast.expr, line: int) -> bool:
    return any(
        (isinstance(n, ast.Attribute) and n.attr in _RANK) or (isinstance(n, ast.Name) and n.id in _RANK)
        for one in flows.sources(part, line)
        for n in walked(one)
    )


def _number(node: ast.expr | None) -> int | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def made_by(node: ast.FunctionDef, module: str) -> set[str]:
    """Return the names that hold what `self.<module>(...)` gives, or parts of it."""
    found: set[str] = set()
    for _ in range(3):
        for item in walked(node):
            if isinstance(item, ast.Assign) and not any(
                isinstance(n, ast.Call) and last_name(n) in SLICES for n in walked(item.value)
            ):
                from_module = f"self.{module}(" in ast.unparse(item.value)
                from_name = (
                    isinstance(item.value, (ast.Name, ast.Tuple, ast.Subscript)) and names_in(item.value) & found
                )
                if from_module or from_name:
                    found |= {n.id for target in item.targets for n in walked(target) if isinstance(n, ast.Name)}
    return found
