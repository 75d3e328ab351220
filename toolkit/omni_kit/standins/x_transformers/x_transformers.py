"""Rotary positions of neighbouring pairs, for a part of a head, with the decay of xPos where it is asked for."""

import torch
from torch import nn


class RotaryEmbedding(nn.Module):
    """Angles of positions, each twice: for both of a pair."""

    inv_freq: torch.Tensor
    scale: torch.Tensor | None

    def __init__(
        self,
        dim: int,
        use_xpos: bool = False,
        scale_base: int = 512,
        interpolation_factor: float = 1.0,
        base: float = 10000,
        base_rescale_factor: float = 1.0,
    ) -> None:
        super().__init__()
        base = base * base_rescale_factor ** (dim / (dim - 2))
        steps = torch.arange(0, dim, 2).float()
        self.register_buffer("inv_freq", 1.0 / base ** (steps / dim))
        self.interpolation_factor = interpolation_factor
        self.scale_base = scale_base
        self.register_buffer("scale", (steps + 0.4 * dim) / (1.4 * dim) if use_xpos else None)

    def forward_from_seq_len(self, seq_len: int) -> tuple[torch.Tensor, torch.Tensor | float]:
        """Return the angles of the first positions."""
        return self.forward(torch.arange(seq_len, device=self.inv_freq.device))

    def forward(self, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | float]:
        """Return angles [B, N, dim] of positions [N] or [B, N], and their scale."""
        last = t.max() + 1
        t = t[None] if t.dim() == 1 else t
        angles = t.float()[..., None] * self.inv_freq.float() / self.interpolation_factor
        angles = angles.repeat_interleave(2, dim=-1)
        if self.scale is None:
            return angles, 1.0
        power = (t - last // 2) / self.scale_base
        return angles, (self.scale ** power[..., None]).repeat_interleave(2, dim=-1)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    """Return pairs (a, b) as (-b, a)."""
    first, second = x[..., 0::2], x[..., 1::2]
    return torch.stack((-second, first), dim=-1).flatten(-2)


def apply_rotary_pos_emb(t: torch.Tensor, freqs: torch.Tensor, scale: torch.Tensor | float = 1) -> torch.Tensor:
    """Return [B, N, width] or [B, heads, N, width] of which as many elements as there are angles are turned."""
    turned, length = freqs.shape[-1], t.shape[-2]
    freqs = freqs[:, -length:, :]
    if isinstance(scale, torch.Tensor):
        scale = scale[:, -length:, :]
    if t.dim() == 4 and freqs.dim() == 3:
        freqs = freqs[:, None]
        scale = scale[:, None] if isinstance(scale, torch.Tensor) and scale.dim() == 3 else scale
    first, rest = t[..., :turned], t[..., turned:]
    first = first * freqs.cos() * scale + rotate_half(first) * freqs.sin() * scale
    return torch.cat((first, rest), dim=-1).type(t.dtype)
