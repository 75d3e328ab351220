"""The memory layout of a model's experts, read from its source."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

from omni_kit.layout.taxonomy import PAIRS, RETRIEVAL, Memory, pair_orientation, plain
from omni_kit.pysource.source import read_source
from omni_kit.upstream.model import Model
from omni_kit.upstream.skeleton import Parameter

_EXPERT = re.compile(r"\.(?:expert_)?[0-9]+\.[^.]+\.(?:weight|bias)$")


def memory_layout(model: Model, targets: tuple[str, ...]) -> Memory:
    """Return the layout in memory of the parameters that one group feeds.

    Args:
        targets: names of those parameters.
    """
    if not targets:
        return Memory.none
    if any(_EXPERT.search(name) for name in targets):
        return Memory.module_dict
    boxes = {_box(name) for name in targets}
    # a router's bias that lies among the experts leads to a box of its own, which is none
    found = [layout for box in boxes if (layout := _box_layout(model, box)) is not Memory.none]
    if found == [Memory.canonical] * 2:
        return Memory.canonical_two_width
    return found[0] if len(set(found)) == 1 else Memory.none


def interleaves(model: Model) -> bool:
    """Return whether gate and up alternate: the experts' forward takes every second column, or the recipe
    interleaves.
    """
    operations = {op.name for t in (model.recipe.transforms if model.recipe else ()) for op in t.operations}
    if "Interleave" in operations:
        return True
    holders = {(p.where.partition(":")[0], p.owner) for p in model.skeleton.parameters if "expert" in p.owner.lower()}
    return any(_takes_every_second(node) for node in _classes(model, holders))


def _classes(model: Model, places: Iterable[tuple[str, str]]) -> Iterator[ast.ClassDef]:
    """Yield classes by the file that they stand in, as evidence cites it; a sub-model's are in another than the
    model's.
    """
    for file, name in sorted(places):
        path = model.library.root.parent / file
        found = read_source(model.library, path).classes.get(name) if path.is_file() else None
        if found is not None:
            yield found


def _takes_every_second(node: ast.ClassDef) -> bool:
    """`x[..., ::2]` or `x[..., 0::2]` somewhere in the class."""
    return any(
        isinstance(item, ast.Slice) and isinstance(item.step, ast.Constant) and item.step.value == 2
        for item in ast.walk(node)
    )


def _box(name: str) -> str:
    """Return the module that holds an expert parameter: `experts` for `experts.gate_up_proj` and
    `experts.fc1.weight`.
    """
    return plain(name).rpartition(".")[0]


def _box_layout(model: Model, box: str) -> Memory:
    leaves = model.skeleton.by_module.get(box, {})
    for pair in PAIRS:
        if set(pair) <= leaves.keys():
            return _pair_layout(model, pair, leaves)
    if {"up_proj", "down_proj"} <= leaves.keys() and len(leaves["up_proj"].shape or ()) == 3:
        return Memory.no_gate
    if {"w1", "v1", "w2"} <= leaves.keys():
        return Memory.flat_2d
    if set(RETRIEVAL) <= leaves.keys():
        return Memory.retrieval
    return Memory.none


def _pair_layout(model: Model, pair: tuple[str, str], leaves: Mapping[str, Parameter]) -> Memory:
    gate_up, down = (tuple(d or 0 for d in leaves[name].shape or ()) for name in pair)
    # some stack more gates than downs: experts that compute nothing
    orientation = pair_orientation((*down[:1], *gate_up[1:]), down)
    if orientation is Memory.canonical:
        return Memory.canonical if pair == PAIRS[0] else Memory.canonical_renamed
    if orientation is not Memory.transposed:
        return Memory.none
    if any(leaf.endswith("_bias") for leaf in leaves):
        return Memory.transposed_interleaved if interleaves(model) else Memory.transposed_bias
    return Memory.transposed
