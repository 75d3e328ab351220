"""Norms."""

import torch
from torch import nn


class RmsNorm(nn.Module):
    """Divides by the root of the mean square over channels."""

    def __init__(self, channels: int, eps: float = 1e-6, affine: bool = True) -> None:
        super().__init__()
        self.normalized_shape = (channels,)
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(channels)) if affine else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x` normalised."""
        return torch.nn.functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class LayerNorm2d(nn.LayerNorm):
    """Normalises over the channels of pictures."""

    def __init__(self, num_channels: int, eps: float = 1e-6, affine: bool = True) -> None:
        super().__init__(num_channels, eps=eps, elementwise_affine=affine)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x`, [B, C, H, W], normalised."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
