"""Magnitude of a tensor, and whether comparing it can show anything."""

import torch

from omni_kit.toys.tensors import Tensors

# A model marks what must not be chosen with one large number, such as finfo.min. Relative to it, any other difference
# vanishes. A mark occurs more than once, and is that many times as large as everything else.
_MARK, _APART = 1e4, 1e3
# Products of smaller numbers underflow in float32.
_VANISHING = 1e-30


def unmarked(tensor: torch.Tensor) -> torch.Tensor:
    """Return which elements are the model's own numbers, and not marks; the same shape, bool."""
    kept = torch.ones_like(tensor, dtype=torch.bool)
    sizes = tensor.detach().abs()
    while kept.any() and float(largest := sizes[kept].max()) >= _MARK:
        marks = kept & (sizes == largest)
        rest = sizes[kept & ~marks]
        if int(marks.sum()) == 1 or not rest.numel() or not 0 < float(rest.max()) * _APART <= float(largest):
            break
        kept &= ~marks
    return kept


def scale(tensor: torch.Tensor) -> float:
    """Return the largest magnitude of a tensor, marks left out; 0 for an empty one."""
    if not tensor.numel():
        return 0.0
    largest = float(tensor.abs().max())
    if largest < _MARK or not tensor.is_floating_point():
        return largest
    return float(tensor[unmarked(tensor)].abs().max())


def degenerate(tensors: Tensors) -> str:
    """Return why a group of tensors distinguishes nothing; empty if one of them does.

    A single number, such as a loss, counts where there is nothing larger: it hardly depends on outputs that vanish.
    """
    floating = {name: one for name, one in tensors.items() if one.is_floating_point() and one.numel()}
    several = {name: one for name, one in floating.items() if one.numel() > 1} or floating
    name, first = next(iter(several.items()), ("", None))
    if first is None or any(map(_tells, several.values())):
        return ""
    how = "vanishes" if scale(first) < _VANISHING else "is the same number everywhere"
    return f"upstream's own {name} {how}{', as all other tensors do' if len(several) > 1 else ''}"


def _tells(tensor: torch.Tensor) -> bool:
    return scale(tensor) >= _VANISHING and (tensor.numel() == 1 or bool((tensor != tensor.flatten()[0]).any()))
