"""Attention over a sequence that processes share."""

from typing import Any

import torch
from torch import nn


class xFuserLongContextAttention(nn.Module):  # noqa: N801
    """Attention over a sequence that one process has whole."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(
        self,
        attn: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        joint_tensor_query: torch.Tensor | None = None,
        joint_tensor_key: torch.Tensor | None = None,
        joint_tensor_value: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
        joint_strategy: str = "none",
        **kwargs: Any,
    ) -> torch.Tensor:
        """Return attention of [B, N, heads, width]; joint tokens stand in front, or at the rear."""
        if joint_tensor_query is not None and joint_tensor_key is not None and joint_tensor_value is not None:
            front = joint_strategy == "front"
            query = torch.cat([joint_tensor_query, query] if front else [query, joint_tensor_query], dim=1)
            key = torch.cat([joint_tensor_key, key] if front else [key, joint_tensor_key], dim=1)
            value = torch.cat([joint_tensor_value, value] if front else [value, joint_tensor_value], dim=1)
        x = torch.nn.functional.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            dropout_p=dropout_p,
            scale=softmax_scale,
            is_causal=causal,
        )
        return x.transpose(1, 2).contiguous()
