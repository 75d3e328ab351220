"""The operations of transformers' recipes, as operations on expressions."""

from collections.abc import Callable, Mapping, Sequence

from omni_kit.errors import BadInput
from omni_kit.upstream.transformers.recipes.expression import (
    Expression,
    deinterleave,
    interleave,
    join,
    split,
    stack,
    transpose,
    unstack,
)
from omni_kit.upstream.transformers.recipes.transform import Operation

Shape = tuple[int | None, ...]
Slots = list[list[Expression]]
Goals = Sequence[Shape | None]
_Arguments = dict[str, object]

_INVERSE = {
    "MergeModulelist": "SplitModulelist",
    "Concatenate": "Chunk",
    "Chunk": "Concatenate",
    "Split": "Concatenate",
    "Transpose": "Transpose",
    "Interleave": "Deinterleave",
    "PermuteForRope": "PermuteForRopeBack",
    "ErnieFuseAndSplitTextVisionExperts": "ErnieSplitAndDecoupleTextVisionExperts",
}
_PARAMETERS = {
    "Transpose": ("dim0", "dim1", "check_dims"),
    "ErnieFuseAndSplitTextVisionExperts": ("stack_dim", "concat_dim"),
}


def inverse_operation(operation: Operation) -> Operation:
    """Return the operation that undoes this one; if there is none that only rearranges, one that cannot be run."""
    arguments = _arguments(operation)
    arguments.pop("check_dims", None)  # published checkpoints have the form that the transposition is declared for
    name = _INVERSE.get(operation.name, f"the inverse of {operation.name}")
    return Operation(name, (), tuple(arguments.items()))


def _arguments(operation: Operation) -> dict[str, object]:
    names = _PARAMETERS.get(operation.name, ("dim",))
    return {**dict(zip(names, operation.args, strict=False)), **dict(operation.kwargs)}


def run_operation(operation: Operation, slots: Slots, goals: Goals) -> Slots:
    """Run one operation.

    Args:
        slots: for each source pattern its tensors, in order.
        goals: for each target its shape, where it is known.

    Raises:
        BadInput: the operation does more than rearrange.
        ValueError: the tensors do not fit it.
    """
    arguments = _arguments(operation)
    run = _OPERATIONS.get(operation.name)
    if run is None or arguments.get("num_shards_attribute"):
        raise BadInput(f"the recipe has {operation}, which does more than rearrange, so it requires the model")
    return run(slots, arguments, goals)


def _dim(arguments: _Arguments, name: str = "dim") -> int:
    value = arguments.get(name, 1 if name in {"dim1", "concat_dim"} else 0)
    if not isinstance(value, int):
        raise ValueError(f"{name} is {value!r}")
    return value


def _merge(slots: Slots, arguments: _Arguments, goals: Goals) -> Slots:
    return [[stack(parts, _dim(arguments))] for parts in slots]


def _separate(slots: Slots, arguments: _Arguments, goals: Goals) -> Slots:
    return [unstack(_sole(parts), _dim(arguments)) for parts in slots]


def _concatenate(slots: Slots, arguments: _Arguments, goals: Goals) -> Slots:
    return [[join([part for parts in slots for part in parts], _dim(arguments))]]


def _chunk(slots: Slots, arguments: _Arguments, goals: Goals) -> Slots:
    (parts,) = slots
    tensor, dim = _sole(parts), _dim(arguments)
    return [[part] for part in split(tensor, [tensor.shape[dim] // len(goals)] * len(goals), dim)]


def _split_as_goals(slots: Slots, arguments: _Arguments, goals: Goals) -> Slots:
    (parts,) = slots
    dim = _dim(arguments)
    sizes = [goal[dim] if goal else None for goal in goals]
    known = [size for size in sizes if size is not None]
    if len(known) != len(sizes):
        raise ValueError("the sizes of its parts are not known")
    return [[part] for part in split(_sole(parts), known, dim)]


def _transpose(slots: Slots, arguments: _Arguments, goals: Goals) -> Slots:
    (parts,) = slots
    tensor = _sole(parts)
    if arguments.get("check_dims") and goals[0] == tensor.shape:
        return slots
    return [[transpose(tensor, _dim(arguments, "dim0"), _dim(arguments, "dim1"))]]


def _interleave(slots: Slots, arguments: _Arguments, goals: Goals) -> Slots:
    """Upstream's Interleave takes alternating rows apart; its `inverse` alternates them."""
    run = interleave if arguments.get("inverse") else deinterleave
    return [[run(_sole(parts), _dim(arguments))] for parts in slots]


def _interleave_back(slots: Slots, arguments: _Arguments, goals: Goals) -> Slots:
    return _interleave(slots, {**arguments, "inverse": not arguments.get("inverse")}, goals)


def _permute(slots: Slots, arguments: _Arguments, goals: Goals) -> Slots:
    """Within each head, pairs of neighbouring rows become two halves; `inverse` makes pairs of the halves again."""
    heads, permuted = arguments.get("heads"), arguments.get("permuted")
    if not isinstance(heads, int) or not isinstance(permuted, tuple):
        raise ValueError("the config does not say how many heads there are")
    run = interleave if arguments.get("inverse") else deinterleave
    found: Slots = []
    for parts, meant in zip(slots, permuted, strict=True):
        tensor = _sole(parts)
        each = split(tensor, [tensor.shape[0] // heads] * heads, 0) if meant else [tensor]
        found.append([join([run(head, 0) for head in each], 0) if meant else tensor])
    return found


def _permute_back(slots: Slots, arguments: _Arguments, goals: Goals) -> Slots:
    return _permute(slots, {**arguments, "inverse": not arguments.get("inverse")}, goals)


def _fuse_text_and_vision(slots: Slots, arguments: _Arguments, goals: Goals) -> Slots:
    """The first experts are for text, the others for vision; each share is stacked, then gate and up are joined."""
    found: Slots = []
    for number in range(len(goals)):
        shares = []
        for parts in slots:
            width = -(-len(parts) // len(goals))
            shares.append(stack(parts[number * width : (number + 1) * width], _dim(arguments, "stack_dim")))
        found.append([join(shares, _dim(arguments, "concat_dim"))])
    return found


def _separate_text_and_vision(slots: Slots, arguments: _Arguments, goals: Goals) -> Slots:
    dim = _dim(arguments, "concat_dim")
    found: Slots = [[] for _ in goals]
    for parts in slots:
        tensor = _sole(parts)
        for into, part in zip(found, split(tensor, [tensor.shape[dim] // len(goals)] * len(goals), dim), strict=True):
            into += unstack(part, _dim(arguments, "stack_dim"))
    return found


def _sole(parts: list[Expression]) -> Expression:
    if len(parts) != 1:
        raise ValueError(f"{len(parts)} tensors instead of one")
    return parts[0]


_OPERATIONS: Mapping[str, Callable[[Slots, _Arguments, Goals], Slots]] = {
    "MergeModulelist": _merge,
    "SplitModulelist": _separate,
    "Concatenate": _concatenate,
    "Chunk": _chunk,
    "Split": _split_as_goals,
    "Transpose": _transpose,
    "Interleave": _interleave,
    "Deinterleave": _interleave_back,
    "PermuteForRope": _permute,
    "PermuteForRopeBack": _permute_back,
    "ErnieFuseAndSplitTextVisionExperts": _fuse_text_and_vision,
    "ErnieSplitAndDecoupleTextVisionExperts": _separate_text_and_vision,
}
