"""Attention over tensors [N, B, heads, width], of format "bshd" [B, N, heads, width]."""

from typing import Any

import torch
from torch import nn


class DotProductAttention(nn.Module):
    """Attention in one process; a mask is True where a key is hidden."""

    def __init__(
        self,
        num_attention_heads: int,
        kv_channels: int | tuple[int, int],
        num_gqa_groups: int | None = None,
        attention_dropout: float = 0.0,
        qkv_format: str = "sbhd",
        attn_mask_type: str = "causal",
        window_size: tuple[int, int] | None = None,
        sequence_parallel: bool = False,
        tp_size: int = 1,
        get_rng_state_tracker: Any = None,
        tp_group: Any = None,
        layer_number: int | None = None,
        attention_type: str = "self",
        cp_group: Any = None,
        cp_global_ranks: Any = None,
        cp_stream: Any = None,
        cp_comm_type: str = "p2p",
        softmax_scale: float | None = None,
    ) -> None:
        super().__init__()
        if qkv_format not in ("sbhd", "bshd") or window_size not in (None, (-1, -1), (-1, 0)):
            raise NotImplementedError(f"attention over {qkv_format} in windows; pip install transformer_engine")
        self.qkv_format = qkv_format
        self.attn_mask_type = attn_mask_type
        self.attention_dropout = attention_dropout
        self.softmax_scale = softmax_scale

    def forward(
        self,
        query_layer: torch.Tensor,
        key_layer: torch.Tensor,
        value_layer: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        attn_mask_type: str | None = None,
        core_attention_bias_type: str = "no_bias",
        core_attention_bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return what the queries find, its heads next to each other: [N, B, all heads' width] or [B, N, the same]."""
        kind = attn_mask_type or self.attn_mask_type
        if kind not in ("no_mask", "causal", "arbitrary") or core_attention_bias_type != "no_bias":
            raise NotImplementedError(
                f"attention with a mask {kind} and {core_attention_bias_type}; pip install transformer_engine"
            )
        order = (0, 2, 1, 3) if self.qkv_format == "bshd" else (1, 2, 0, 3)
        q, k, v = (one.permute(order) for one in (query_layer, key_layer, value_layer))
        found = nn.functional.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=~attention_mask if kind == "arbitrary" and attention_mask is not None else None,
            dropout_p=self.attention_dropout if self.training else 0.0,
            is_causal=kind == "causal",
            scale=self.softmax_scale,
            enable_gqa=k.shape[1] != q.shape[1],
        )
        return found.permute((0, 2, 1, 3) if self.qkv_format == "bshd" else (2, 0, 1, 3)).flatten(2)
