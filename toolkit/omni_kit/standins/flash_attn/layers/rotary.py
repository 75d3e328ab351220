"""Rotary positions of tensors [B, N, heads, width]; cosines and sines are [N, half of the turned width]."""

import torch


def rotate_half(x: torch.Tensor, interleaved: bool = False) -> torch.Tensor:
    """Return (-second, first) of the halves of the width, or of neighbouring pairs."""
    if interleaved:
        return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def apply_rotary_emb_torch(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False
) -> torch.Tensor:
    """Return [..., N, heads, width] turned; the width after twice that of the angles stays as it is."""
    width = 2 * cos.shape[-1]
    cos, sin = (one.repeat_interleave(2, -1) if interleaved else torch.cat((one, one), -1) for one in (cos, sin))
    turned = x[..., :width] * cos.unsqueeze(-2) + rotate_half(x[..., :width], interleaved) * sin.unsqueeze(-2)
    return torch.cat((turned, x[..., width:]), dim=-1)


def apply_rotary_emb(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int = 0,
) -> torch.Tensor:
    """Return [B, N, heads, width] turned by the angles of its places, from the place `seqlen_offsets` on."""
    places = slice(seqlen_offsets, seqlen_offsets + x.shape[1])
    turned = apply_rotary_emb_torch(x, cos[places], sin[places], interleaved)
    return x.copy_(turned) if inplace else turned


apply_rotary_emb_func = apply_rotary_emb


def apply_rotary_emb_qkv_(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    cos_k: torch.Tensor | None = None,
    sin_k: torch.Tensor | None = None,
    interleaved: bool = False,
    seqlen_offsets: int = 0,
) -> torch.Tensor:
    """Turn queries and keys of [B, N, 3, heads, width] in place, and return it."""
    cos_k, sin_k = cos if cos_k is None else cos_k, sin if sin_k is None else sin_k
    q = apply_rotary_emb(qkv[:, :, 0], cos, sin, interleaved, seqlen_offsets=seqlen_offsets)
    k = apply_rotary_emb(qkv[:, :, 1], cos_k, sin_k, interleaved, seqlen_offsets=seqlen_offsets)
    qkv[:, :, :2] = torch.stack((q, k), dim=2)
    return qkv


def apply_rotary_emb_kv_(
    kv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False, seqlen_offsets: int = 0
) -> torch.Tensor:
    """Turn keys of [B, N, 2, heads, width] in place, and return it."""
    kv[:, :, 0] = apply_rotary_emb(kv[:, :, 0], cos, sin, interleaved, seqlen_offsets=seqlen_offsets)
    return kv
