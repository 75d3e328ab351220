"""Residual branches that are scaled, or dropped at random while a model trains."""

import torch
from torch import nn


def drop_path(
    x: torch.Tensor, drop_prob: float = 0.0, training: bool = False, scale_by_keep: bool = True
) -> torch.Tensor:
    """Return `x` with some samples of the batch set to zero."""
    if drop_prob == 0.0 or not training:
        return x
    kept = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - drop_prob)
    return x * (kept / (1 - drop_prob) if scale_by_keep and drop_prob < 1.0 else kept)


class DropPath(nn.Module):
    """Drops a branch for some samples of a batch."""

    def __init__(self, drop_prob: float = 0.0, scale_by_keep: bool = True) -> None:
        super().__init__()
        self.drop_prob = drop_prob
        self.scale_by_keep = scale_by_keep

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x`, in training with some samples set to zero."""
        return drop_path(x, self.drop_prob, self.training, self.scale_by_keep)


class LayerScale(nn.Module):
    """A factor for each channel."""

    def __init__(self, dim: int, init_values: float = 1e-5, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
        self.gamma = nn.Parameter(init_values * torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x` scaled."""
        return x.mul_(self.gamma) if self.inplace else x * self.gamma
