"""Attention over packed sequences in plain torch, instead of VeOmni's flash attention kernel, which needs a GPU.

Everything around the kernel stays VeOmni's own: its registered attention function, its exchange of heads for tokens
between processes, and the lengths that its collator computed.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from omni_kit.targets.veomni.runtime.slots import ATTENTION, note_call

_WITHOUT_FLASH = "torch stood in for the flash attention kernel, which needs an accelerator"
_REGISTRY = "ALL_ATTENTION_FUNCTIONS"
SHARED = "veomni_flash_attention_2_with_sp"


def use_packed_attention(model: nn.Module) -> str:
    """Send the model's attention through VeOmni's flash attention function, with the torch version as its kernel.

    Chosen after the model is built, because building with it selected requires the flash attention package.

    Returns:
        What is to be said about it.
    """
    from veomni.ops.kernels.attention import flash

    flash._flash_attention_forward = packed_attention
    for config in _configs(model):
        config._attn_implementation = SHARED
        # In float32, which the kernel itself never gets, VeOmni else asks the next Linear, and there may be none.
        config._pre_quantization_dtype = torch.float32
    return _WITHOUT_FLASH


@contextmanager
def packed_attention_used(model: nn.Module) -> Iterator[None]:
    """Use packed attention while this is entered."""
    before = [(config, config._attn_implementation) for config in _configs(model)]
    use_packed_attention(model)
    try:
        yield
    finally:
        for config, implementation in before:  # a whole's comes first, and sets those of its parts
            config._attn_implementation = implementation
            del config._pre_quantization_dtype


def takes_flash(model: nn.Module) -> bool:
    """Return whether VeOmni's flash attention reaches a model: it declares it, and looks functions up by name.

    A model that selects one of its own classes by name, when it is built, knows no class of VeOmni's name.
    """
    modules = (sys.modules.get(kind.__module__) for kind in {type(part) for part in model.modules()})
    return getattr(model, "_supports_flash_attn", False) and any(hasattr(one, _REGISTRY) for one in modules)


def window_in_dispute(model: nn.Module) -> str:
    """Return why upstream's eager attention cannot judge flash attention for a model; empty if it can.

    Without causality, transformers' masks reach tokens up to `sliding_window` away, and its flash attention one fewer.
    """
    for config in _configs(model):
        if not getattr(config, "is_causal", True) and (window := getattr(config, "sliding_window", None)):
            return (
                f"is_causal=false with sliding_window={window}: transformers' own flash attention reaches "
                f"{window - 1} tokens, its masks reach {window}"
            )
    return ""


def _configs(model: nn.Module) -> list[Any]:
    """Return every config that a part of it has, once."""
    found = {id(config): config for one in model.modules() if (config := getattr(one, "config", None)) is not None}
    return list(found.values())


def packed_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    query_length: int,
    is_causal: bool,
    dropout: float = 0.0,
    softmax_scale: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None,
    s_aux: torch.Tensor | None = None,
    max_length_q: int | None = None,
    max_length_k: int | None = None,
    **_: Any,
) -> torch.Tensor:
    """Compute flash attention sequence by sequence: no token attends to another sequence's.

    Args:
        query, key, value: [batch, tokens, heads, width]; fewer heads in key and value are shared.
        cu_seq_lens_q, cu_seq_lens_k: where the sequences begin and end, [sequences + 1]; None for one a row.
        sliding_window: how many tokens a query sees, itself included.
        s_aux: a logit for each head that takes part in the softmax and stands for no token, [heads].
        max_length_q, max_length_k: the longest sequence, beyond which a kernel does not look.

    Returns:
        [batch, tokens, heads, width of value], in the dtype of `query`.

    Raises:
        ValueError: the bounds do not divide the tokens, and a kernel would read beyond them or leave some out.
    """
    _check(cu_seq_lens_q, query.shape[1], max_length_q)
    _check(cu_seq_lens_k, key.shape[1], max_length_k)
    how = {"is_causal": is_causal, "scale": softmax_scale, "window": sliding_window, "softcap": softcap}
    note_call(ATTENTION, (query, key, value), how)
    shared = query.shape[2] // key.shape[2]
    keys, values = (tensor.repeat_interleave(shared, dim=2).transpose(1, 2) for tensor in (key, value))
    scores = query.transpose(1, 2).float() @ keys.float().mT
    scores = scores * (query.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    rows, columns = (
        _places(bounds, length, query.device)
        for bounds, length in ((cu_seq_lens_q, query.shape[1]), (cu_seq_lens_k, key.shape[1]))
    )
    allowed = rows[0][:, None] == columns[0][None]
    ahead = columns[1][None] - rows[1][:, None]
    if is_causal:
        allowed &= ahead <= 0
    if sliding_window:
        allowed &= ahead.abs() < sliding_window
    # The lowest number, not minus infinity: a row without any key gives no NaN.
    scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    weights = _softmax(scores, s_aux).to(values.dtype)
    return (weights @ values).transpose(1, 2).contiguous().to(query.dtype)


def _check(bounds: torch.Tensor | None, length: int, longest: int | None) -> None:
    if bounds is None:
        return
    ends = bounds.tolist()
    lengths = [end - start for start, end in pairwise(ends)]
    if ends[0] != 0 or ends[-1] != length or min(lengths, default=0) < 0:
        raise ValueError(f"the bounds of packed sequences, {ends}, do not divide {length} tokens")
    if longest is not None and int(longest) < max(lengths):
        raise ValueError(f"the longest packed sequence has {max(lengths)} tokens, but the maximum is {int(longest)}")


def _places(bounds: torch.Tensor | None, length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """For each token, the number of its sequence and its place in it."""
    tokens = torch.arange(length, device=device)
    if bounds is None:
        return torch.zeros_like(tokens), tokens
    starts = bounds.to(device).long()
    sequence = torch.searchsorted(starts, tokens, right=True) - 1
    return sequence, tokens - starts[sequence.clamp(max=len(starts) - 1)]


def _softmax(scores: torch.Tensor, sink: torch.Tensor | None) -> torch.Tensor:
    if sink is None:
        return scores.softmax(dim=-1)
    extra = sink.float().reshape(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.cat([scores, extra], dim=-1).softmax(dim=-1)[..., :-1]
