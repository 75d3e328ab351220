"""Attention of version 1 as modules, which return no weights."""

import torch
from torch import nn

from .bert_padding import pad_input, unpad_input
from .flash_attn_interface import flash_attn_qkvpacked_func, flash_attn_varlen_qkvpacked_func


class FlashAttention(nn.Module):
    """Attention of queries, keys and values in one tensor, without projections."""

    def __init__(
        self,
        softmax_scale: float | None = None,
        attention_dropout: float = 0.0,
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        self.softmax_scale = softmax_scale
        self.dropout_p = attention_dropout

    def forward(
        self,
        qkv: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        causal: bool = False,
        cu_seqlens: torch.Tensor | None = None,
        max_s: int | None = None,
        need_weights: bool = False,
    ) -> tuple[torch.Tensor, None]:
        """Return attention of [B, N, 3, heads, width] or, with `cu_seqlens`, of [tokens, 3, heads, width].

        Places where `key_padding_mask` [B, N] is false are zeros.
        """
        share = self.dropout_p if self.training else 0.0
        if cu_seqlens is not None:
            return flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_s, share, self.softmax_scale, causal), None
        if key_padding_mask is None:
            return flash_attn_qkvpacked_func(qkv, share, self.softmax_scale, causal), None
        tokens, indices, ends, longest = unpad_input(qkv, key_padding_mask)
        x = flash_attn_varlen_qkvpacked_func(tokens, ends, longest, share, self.softmax_scale, causal)
        return pad_input(x, indices, *qkv.shape[:2]), None


class FlashMHA(nn.Module):
    """Attention with projections."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        bias: bool = True,
        batch_first: bool = True,
        attention_dropout: float = 0.0,
        causal: bool = False,
        device: object = None,
        dtype: object = None,
    ) -> None:
        super().__init__()
        self.num_heads, self.causal = num_heads, causal
        self.Wqkv = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.inner_attn = FlashAttention(attention_dropout=attention_dropout)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(
        self, x: torch.Tensor, key_padding_mask: torch.Tensor | None = None, need_weights: bool = False
    ) -> tuple[torch.Tensor, None]:
        """Return attention of [B, N, width]."""
        qkv = self.Wqkv(x).unflatten(-1, (3, self.num_heads, -1))
        context, weights = self.inner_attn(qkv, key_padding_mask=key_padding_mask, causal=self.causal)
        return self.out_proj(context.flatten(-2)), weights
