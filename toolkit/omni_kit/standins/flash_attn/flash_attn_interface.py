"""Attention of tensors [B, N, heads, width], and of rows of samples of several lengths."""

import torch


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    **kwargs: object,
) -> torch.Tensor:
    """Return attention of [B, N, heads, width]; fewer heads of keys and values are shared by several of queries."""
    mask = None
    if causal:  # the last query sees every key
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device).tril(k.shape[1] - q.shape[1])
    x = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=mask,
        dropout_p=dropout_p,
        scale=softmax_scale,
        enable_gqa=q.shape[2] != k.shape[2],
    )
    return x.transpose(1, 2).contiguous()


def flash_attn_qkvpacked_func(qkv: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
    """Return attention of [B, N, 3, heads, width]."""
    return flash_attn_func(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], *args, **kwargs)  # type: ignore[arg-type]


def flash_attn_kvpacked_func(q: torch.Tensor, kv: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
    """Return attention to keys and values [B, N, 2, heads, width]."""
    return flash_attn_func(q, kv[:, :, 0], kv[:, :, 1], *args, **kwargs)  # type: ignore[arg-type]


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    **kwargs: object,
) -> torch.Tensor:
    """Return attention of [tokens, heads, width], each sample to itself: where they end is cumulated."""
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    found = []
    for index in range(len(ends_q) - 1):
        one_q = q[ends_q[index] : ends_q[index + 1]]
        one_k = k[ends_k[index] : ends_k[index + 1]]
        one_v = v[ends_k[index] : ends_k[index + 1]]
        found.append(flash_attn_func(one_q[None], one_k[None], one_v[None], dropout_p, softmax_scale, causal)[0])
    return torch.cat(found)


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int | None = None, *args: object, **kwargs: object
) -> torch.Tensor:
    """Return attention of [tokens, 3, heads, width]."""
    q, k, v = qkv[:, 0], qkv[:, 1], qkv[:, 2]
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *args, **kwargs  # type: ignore[arg-type]
    )  # fmt: skip


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    *args: object,
    **kwargs: object,
) -> torch.Tensor:
    """Return attention to keys and values [tokens, 2, heads, width]."""
    return flash_attn_varlen_func(q, kv[:, 0], kv[:, 1], cu_seqlens_q, cu_seqlens_k, *args, **kwargs)  # type: ignore[arg-type]


# Names of version 1.
flash_attn_unpadded_func = flash_attn_varlen_func
flash_attn_unpadded_qkvpacked_func = flash_attn_varlen_qkvpacked_func
flash_attn_unpadded_kvpacked_func = flash_attn_varlen_kvpacked_func
