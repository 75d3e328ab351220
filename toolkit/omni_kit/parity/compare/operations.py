"""Counts what a module itself computes, by dtype: below autograd, where casts that code hides are seen, too."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# What moves numbers and changes none.
_MOVES = frozenset(
    {"clone", "copy_", "cat", "stack", "index", "index_put_", "index_select", "gather", "embedding", "where", "detach"}
    | {"masked_fill", "masked_fill_", "constant_pad_nd", "repeat", "repeat_interleave", "zeros_like", "empty_like"}
    | {"new_zeros", "new_empty", "new_full", "full_like", "ones_like", "fill_", "zero_", "roll", "flip", "topk", "sort"}
    | {"scatter", "scatter_", "masked_select", "nonzero", "clamp", "clamp_", "relu", "neg", "abs", "lift_fresh"}
)
_CAST = "_to_copy"
# Sums over products or in any order: who adds in another order may round otherwise.
_SUMS = frozenset(
    {"mm", "bmm", "addmm", "baddbmm", "dot", "mv", "convolution", "index_add", "index_add_", "scatter_add"}
)
_FUSED = ("attention", "grouped", "linear", "cudnn", "mkldnn")


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes every operation on floating-point numbers while it is entered.

    Args:
        note: gets what was computed: "mul float32" becomes "float32", a cast "to bfloat16", and a sum of products its
            name with "sum".
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._note = note

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and note it."""
        found = func(*args, **(kwargs or {}))
        result = next(_floats(found), None)
        source = next(_floats((args, kwargs or {})), None)
        if result is not None and source is not None:
            for what in _kinds(func, source.dtype, result.dtype):
                self._note(what)
        return found


def _kinds(func: Any, source: torch.dtype, result: torch.dtype) -> Iterator[str]:
    name = func.overloadpacket.__name__
    if name == _CAST:
        if source != result:
            yield f"to {_dtype(result)}"
    elif name not in _MOVES and not any(one.alias_info and not one.alias_info.is_write for one in func._schema.returns):
        yield _dtype(result)
        if name in _SUMS or any(word in name for word in _FUSED):
            yield f"sum {name}"


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _floats(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _floats(one)
    elif isinstance(value, dict):
        yield from _floats(tuple(value.values()))
