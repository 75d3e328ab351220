"""The attention of versions up to 0.13, which models of films derive from."""

import torch
from torch import nn


class CrossAttention(nn.Module):
    """Attention over a text, or over the hidden states themselves; weights have the names that `Attention` has."""

    def __init__(
        self,
        query_dim: int,
        cross_attention_dim: int | None = None,
        heads: int = 8,
        dim_head: int = 64,
        dropout: float = 0.0,
        bias: bool = False,
        upcast_attention: bool = False,
        upcast_softmax: bool = False,
        added_kv_proj_dim: int | None = None,
        norm_num_groups: int | None = None,
    ) -> None:
        super().__init__()
        inner_dim = dim_head * heads
        cross_attention_dim = query_dim if cross_attention_dim is None else cross_attention_dim
        self.upcast_attention = upcast_attention
        self.upcast_softmax = upcast_softmax
        self.scale = dim_head**-0.5
        self.heads = heads
        self.sliceable_head_dim = heads
        self.added_kv_proj_dim = added_kv_proj_dim
        self._slice_size: int | None = None
        self._use_memory_efficient_attention_xformers = False
        self.group_norm: nn.GroupNorm | None = None
        if norm_num_groups is not None:
            self.group_norm = nn.GroupNorm(norm_num_groups, inner_dim, eps=1e-5)
        self.to_q = nn.Linear(query_dim, inner_dim, bias=bias)
        self.to_k = nn.Linear(cross_attention_dim, inner_dim, bias=bias)
        self.to_v = nn.Linear(cross_attention_dim, inner_dim, bias=bias)
        if added_kv_proj_dim is not None:
            self.add_k_proj = nn.Linear(added_kv_proj_dim, cross_attention_dim)
            self.add_v_proj = nn.Linear(added_kv_proj_dim, cross_attention_dim)
        self.to_out = nn.ModuleList([nn.Linear(inner_dim, query_dim), nn.Dropout(dropout)])

    def reshape_heads_to_batch_dim(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return [batch * heads, tokens, width of a head] of [batch, tokens, width]."""
        batch, tokens, dim = tensor.shape
        heads = tensor.reshape(batch, tokens, self.heads, dim // self.heads)
        return heads.permute(0, 2, 1, 3).reshape(batch * self.heads, tokens, dim // self.heads)

    def reshape_batch_dim_to_heads(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return [batch, tokens, width] of [batch * heads, tokens, width of a head]."""
        rows, tokens, dim = tensor.shape
        heads = tensor.reshape(rows // self.heads, self.heads, tokens, dim)
        return heads.permute(0, 2, 1, 3).reshape(rows // self.heads, tokens, dim * self.heads)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Attend."""
        tokens = hidden_states.shape[1]
        if self.group_norm is not None:
            hidden_states = self.group_norm(hidden_states.transpose(1, 2)).transpose(1, 2)
        query = self.reshape_heads_to_batch_dim(self.to_q(hidden_states))
        if self.added_kv_proj_dim is not None:
            own_key = self.reshape_heads_to_batch_dim(self.to_k(hidden_states))
            own_value = self.reshape_heads_to_batch_dim(self.to_v(hidden_states))
            key = self.reshape_heads_to_batch_dim(self.add_k_proj(encoder_hidden_states))
            value = self.reshape_heads_to_batch_dim(self.add_v_proj(encoder_hidden_states))
            key, value = torch.cat([key, own_key], dim=1), torch.cat([value, own_value], dim=1)
        else:
            context = hidden_states if encoder_hidden_states is None else encoder_hidden_states
            key = self.reshape_heads_to_batch_dim(self.to_k(context))
            value = self.reshape_heads_to_batch_dim(self.to_v(context))
        if attention_mask is not None:
            if attention_mask.shape[-1] != tokens:
                attention_mask = nn.functional.pad(attention_mask, (0, tokens), value=0.0)
            attention_mask = attention_mask.repeat_interleave(self.heads, dim=0)
        attended = self._attention(query, key, value, attention_mask)
        out: torch.Tensor = self.to_out[1](self.to_out[0](attended))
        return out

    def _attention(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        if self.upcast_attention:
            query, key = query.float(), key.float()
        scores = torch.bmm(query, key.transpose(-1, -2)) * self.scale
        if attention_mask is not None:
            scores = scores + attention_mask
        if self.upcast_softmax:
            scores = scores.float()
        weights = scores.softmax(dim=-1).to(value.dtype)
        return self.reshape_batch_dim_to_heads(torch.bmm(weights, value))
