"""Attention without projections, as modules."""

import torch
from torch import nn

from ..flash_attn_interface import flash_attn_kvpacked_func, flash_attn_qkvpacked_func


class FlashSelfAttention(nn.Module):
    """Attention of queries, keys and values in one tensor."""

    def __init__(
        self, causal: bool = False, softmax_scale: float | None = None, attention_dropout: float = 0.0, **kwargs: object
    ) -> None:
        super().__init__()
        self.causal, self.softmax_scale = causal, softmax_scale
        self.drop = nn.Dropout(attention_dropout)

    def forward(self, qkv: torch.Tensor, causal: bool | None = None) -> torch.Tensor:
        """Return attention of [B, N, 3, heads, width] as [B, N, heads, width]."""
        share = self.drop.p if self.training else 0.0
        return flash_attn_qkvpacked_func(qkv, share, self.softmax_scale, self.causal if causal is None else causal)


class FlashCrossAttention(nn.Module):
    """Attention of queries to keys and values in one tensor."""

    def __init__(
        self, causal: bool = False, softmax_scale: float | None = None, attention_dropout: float = 0.0, **kwargs: object
    ) -> None:
        super().__init__()
        self.causal, self.softmax_scale = causal, softmax_scale
        self.drop = nn.Dropout(attention_dropout)

    def forward(self, q: torch.Tensor, kv: torch.Tensor, causal: bool | None = None) -> torch.Tensor:
        """Return attention of [B, N, heads, width] to [B, M, 2, heads, width] as [B, N, heads, width]."""
        share = self.drop.p if self.training else 0.0
        return flash_attn_kvpacked_func(q, kv, share, self.softmax_scale, self.causal if causal is None else causal)
