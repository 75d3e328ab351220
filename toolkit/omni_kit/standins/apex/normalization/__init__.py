"""Norms that apex computes in one kernel."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from torch import nn


class FusedLayerNorm(nn.LayerNorm):
    """Torch's own layer norm."""


class FusedRMSNorm(nn.Module):
    """Divides by the root of the mean square."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True, **kwargs: Any
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, Integral) else tuple(normalized_shape)  # type: ignore[arg-type]
        self.normalized_shape = shape
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(*shape)) if elementwise_affine else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x` normalised."""
        return torch.nn.functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)  # type: ignore[arg-type]


class MixedFusedLayerNorm(FusedLayerNorm):
    """FusedLayerNorm for mixed dtypes."""


class MixedFusedRMSNorm(FusedRMSNorm):
    """FusedRMSNorm for mixed dtypes."""
