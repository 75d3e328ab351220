"""Rotary positions; angles are [N, 1, 1, turned width]."""

import torch


def apply_rotary_pos_emb(
    t: torch.Tensor,
    freqs: torch.Tensor,
    tensor_format: str = "sbhd",
    *,
    interleaved: bool = False,
    fused: bool = False,
) -> torch.Tensor:
    """Return [N, B, heads, width], of format "bshd" [B, N, heads, width], turned by the angles of its places.

    The width after that of the angles stays as it is. The kernel that `fused` selects computes in float32.
    """
    if tensor_format not in ("sbhd", "bshd"):
        raise NotImplementedError(f"tensors of format {tensor_format}; pip install transformer_engine")
    freqs = freqs[: t.shape[tensor_format.index("s")]].float()
    freqs = freqs.transpose(0, 1) if tensor_format == "bshd" else freqs
    dtype = torch.float32 if fused else t.dtype
    turned, rest = t[..., : freqs.shape[-1]].to(dtype), t[..., freqs.shape[-1] :]
    if interleaved:
        half = torch.stack((-turned[..., 1::2], turned[..., ::2]), dim=-1).flatten(-2)
    else:
        first, second = turned.chunk(2, dim=-1)
        half = torch.cat((-second, first), dim=-1)
    turned = turned * freqs.cos().to(dtype) + half * freqs.sin().to(dtype)
    return torch.cat((turned.to(t.dtype), rest), dim=-1)
