"""Residual branches that are scaled."""

import torch
from torch import nn


class LayerScale(nn.Module):
    """Scales each channel by a factor."""

    def __init__(self, dim: int, init_values: float = 1e-5, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
        self.gamma = nn.Parameter(init_values * torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x` scaled."""
        return x.mul_(self.gamma) if self.inplace else x * self.gamma
