"""Rotary positions of neighbouring pairs, as a module that holds their frequencies."""

import torch
from torch import nn


class RotaryEmbedding(nn.Module):
    """Turns queries and keys by their places along one axis."""

    def __init__(
        self,
        dim: int,
        custom_freqs: torch.Tensor | None = None,
        freqs_for: str = "lang",
        theta: float = 10000,
        max_freq: float = 10,
        num_freqs: int = 1,
        learned_freq: bool = False,
        interpolate_factor: float = 1.0,
        theta_rescale_factor: float = 1.0,
        seq_before_head_dim: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init__()
        theta = theta * theta_rescale_factor ** (dim / (dim - 2))
        if custom_freqs is not None:
            freqs = custom_freqs
        elif freqs_for == "pixel":
            freqs = torch.linspace(1.0, max_freq / 2, dim // 2) * torch.pi
        elif freqs_for == "constant":
            freqs = torch.ones(num_freqs).float()
        else:
            freqs = 1.0 / theta ** (torch.arange(0, dim, 2)[: dim // 2].float() / dim)
        self.freqs = nn.Parameter(freqs, requires_grad=learned_freq)
        self.interpolate_factor = interpolate_factor
        self.default_seq_dim = -3 if seq_before_head_dim else -2

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        """Return the angles [..., 2 * frequencies] of positions, each twice: for both of a pair."""
        return (t.type(self.freqs.dtype)[..., None] * self.freqs).repeat_interleave(2, dim=-1)

    def rotate_queries_or_keys(self, t: torch.Tensor, seq_dim: int | None = None, offset: float = 0) -> torch.Tensor:
        """Return [..., N, width] turned; of the width as many elements as there are angles."""
        seq_dim = self.default_seq_dim if seq_dim is None else seq_dim
        places = torch.arange(t.shape[seq_dim], device=t.device, dtype=t.dtype) + offset
        angles = self.forward(places / self.interpolate_factor)
        if seq_dim == -3:
            angles = angles[:, None]
        first, rest = t[..., : angles.shape[-1]], t[..., angles.shape[-1] :]
        one, other = first[..., 0::2], first[..., 1::2]
        half = torch.stack((-other, one), dim=-1).flatten(-2)
        return torch.cat((first * angles.cos() + half * angles.sin(), rest), dim=-1).type(t.dtype)
