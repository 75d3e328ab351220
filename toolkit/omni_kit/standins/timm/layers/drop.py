"""Residual branches that are dropped at random while a model trains."""

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
