"""Attention of xformers, and its masks."""

from collections.abc import Sequence
from typing import Any

import torch


class LowerTriangularMask:
    """Every token sees those before it."""

    def materialize(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return what is added to scores of a shape [..., queries, keys]."""
        hidden = torch.ones(*shape[-2:], dtype=torch.bool, device=device).triu(1)
        return torch.zeros(*shape[-2:], dtype=dtype, device=device).masked_fill(hidden, float("-inf"))


class BlockDiagonalMask:
    """Samples of several lengths in one row: each sees itself alone."""

    def __init__(self, q_seqlen: Sequence[int], kv_seqlen: Sequence[int]) -> None:
        self.q_seqlen = list(q_seqlen)
        self.kv_seqlen = list(kv_seqlen)

    @classmethod
    def from_seqlens(cls, q_seqlen: Sequence[int], kv_seqlen: Sequence[int] | None = None) -> "BlockDiagonalMask":
        """Return the mask of samples of these lengths."""
        return cls(q_seqlen, q_seqlen if kv_seqlen is None else kv_seqlen)

    def materialize(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return what is added to scores of a shape [..., queries, keys]."""
        mask = torch.full(tuple(shape[-2:]), float("-inf"), dtype=dtype, device=device)
        row = column = 0
        for rows, columns in zip(self.q_seqlen, self.kv_seqlen, strict=True):
            mask[row : row + rows, column : column + columns] = 0
            row, column = row + rows, column + columns
        return mask


def memory_efficient_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: Any = None,
    p: float = 0.0,
    scale: float | None = None,
    **kwargs: object,
) -> torch.Tensor:
    """Return attention of [B, N, heads, width], or of [B, N, width]; the bias is a tensor, or a mask that makes one."""
    single = query.ndim == 3
    if single:
        query, key, value = query.unsqueeze(2), key.unsqueeze(2), value.unsqueeze(2)
    if attn_bias is not None and not isinstance(attn_bias, torch.Tensor):
        attn_bias = attn_bias.materialize((query.shape[1], key.shape[1]), query.dtype, query.device)
    if single and attn_bias is not None and attn_bias.ndim == 3:
        attn_bias = attn_bias.unsqueeze(1)
    x = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=attn_bias,
        dropout_p=p,
        scale=scale,
    )
    x = x.transpose(1, 2).contiguous()
    return x.squeeze(2) if single else x
