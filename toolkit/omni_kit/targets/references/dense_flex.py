"""Flex attention in plain operations, with gradients on a CPU, where torch's own has none and traces each call."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.attention import flex_attention as flex

Mod = Callable[..., torch.Tensor]
_create_block_mask = flex.create_block_mask


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Mod | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
) -> Any:
    """Return attention as torch's function of the module does; a query that may see no key gets zeros.

    Args:
        query: [batch, heads, queries, width].
        key, value: [batch, heads, keys, width]; fewer heads with `enable_gqa`.

    Raises:
        ValueError: the mask is for fewer queries or keys.
    """
    if enable_gqa:
        key, value = (one.repeat_interleave(query.shape[1] // one.shape[1], 1) for one in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query @ key.transpose(-2, -1)).to(torch.promote_types(query.dtype, torch.float32)) * scale
    places = [torch.arange(size, device=query.device) for size in scores.shape]
    if score_mod is not None:
        scores = _everywhere(score_mod, first=0)(scores, *places)
    if block_mask is not None:
        scores = scores.masked_fill(~_seen(block_mask, places), -torch.inf)
    blind = scores.isneginf().all(-1, keepdim=True)
    weights = scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)
    answer = weights.to(query.dtype) @ value
    return (answer, scores.logsumexp(-1)) if return_lse else answer


def create_block_mask(*args: Any, **given: Any) -> Any:
    """Return the mask of torch's function of this name, which is not compiled."""
    return _create_block_mask(*args, **{**given, "_compile": False})


def _seen(mask: Any, places: list[torch.Tensor]) -> torch.Tensor:
    """Return which key each query may see: of the blocks that the mask has, what its function allows."""
    rows, columns = (len(one) for one in places[-2:])
    if mask.shape[-2] < rows or mask.shape[-1] < columns:
        raise ValueError(
            f"block_mask is for {mask.shape[-2]} queries and {mask.shape[-1]} keys, not {rows} and {columns}"
        )
    high, wide = mask.BLOCK_SIZE
    blocks = mask.to_dense().bool().repeat_interleave(high, -2).repeat_interleave(wide, -1)[..., :rows, :columns]
    seen: torch.Tensor = blocks & _everywhere(mask.mask_mod)(*places)
    return seen


def _everywhere(mod: Mod, first: int | None = None) -> Mod:
    """Return a function of one place as one of all places: samples, heads, queries and keys.

    Args:
        first: 0 where an argument before the places has all of their axes.
    """
    before = () if first is None else (first,)
    for axes in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        mod = torch.vmap(mod, in_dims=(*before, *axes))
    return mod


FUNCTIONS: Mapping[str, Any] = {"flex_attention": attend, "create_block_mask": create_block_mask}
"""Functions of torch's module by name, with those here that take their place."""
