"""Rotary positions of neighbouring pairs, as a module that holds their frequencies."""

import torch
from torch import nn


def apply_rotary_emb(
    freqs: torch.Tensor,
    t: torch.Tensor,
    start_index: int = 0,
    scale: float | torch.Tensor = 1.0,
    seq_dim: int = -2,
    freqs_seq_dim: int | None = None,
) -> torch.Tensor:
    """Return `t` [..., N, width] turned by angles, from the channel `start_index` on; of more angles the last ones."""
    if freqs_seq_dim is None and (freqs.ndim == 2 or t.ndim == 3):
        freqs_seq_dim = 0
    if freqs_seq_dim is not None:
        kept = freqs.shape[freqs_seq_dim]
        freqs = freqs.narrow(freqs_seq_dim, max(kept - t.shape[seq_dim], 0), min(kept, t.shape[seq_dim]))
    before, turned, rest = t.tensor_split((start_index, start_index + freqs.shape[-1]), dim=-1)
    half = torch.stack((-turned[..., 1::2], turned[..., 0::2]), dim=-1).flatten(-2)
    return torch.cat((before, (turned * freqs.cos() + half * freqs.sin()) * scale, rest), dim=-1).type(t.dtype)


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
        self.freqs_for = freqs_for
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
        return apply_rotary_emb(angles[:, None] if seq_dim == -3 else angles, t, seq_dim=seq_dim)

    def get_axial_freqs(self, *dims: int, offsets: tuple[float, ...] | None = None) -> torch.Tensor:
        """Return the angles [*dims, twice the frequencies of each axis] of a grid; axes of pixels go from -1 to 1."""
        angles: list[torch.Tensor] = []
        for axis, (size, offset) in enumerate(zip(dims, offsets or (0,) * len(dims), strict=True)):
            device = self.freqs.device
            places = torch.linspace(-1, 1, size) if self.freqs_for == "pixel" else torch.arange(size)
            own = self.forward(places.to(device) + offset)
            angles.append(own[(slice(None), *(None,) * (len(dims) - 1 - axis))])
        return torch.cat([one.expand(*dims, -1) for one in angles], dim=-1)
