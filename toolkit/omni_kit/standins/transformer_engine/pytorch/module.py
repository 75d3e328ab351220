"""Layers that transformer_engine computes with kernels of its own."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


class Linear(nn.Linear):
    """Torch's own projection; of a layer that processes share, the whole."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        params_dtype: torch.dtype | None = None,
        device: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias=bias, device=device, dtype=params_dtype)


class RMSNorm(nn.Module):
    """Divides by the root of the mean square, in float32; `zero_centered_gamma` multiplies by 1 + weight."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        *,
        zero_centered_gamma: bool = False,
        params_dtype: torch.dtype | None = None,
        device: Any = None,
    ) -> None:
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.zero_centered_gamma = zero_centered_gamma
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=params_dtype))
        self.reset_parameters()

    def reset_parameters(self, defer_init: bool | None = None) -> None:
        """Set the weight to what leaves normalised values as they are."""
        nn.init.constant_(self.weight, float(not self.zero_centered_gamma))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x` normalised, in its dtype."""
        weight = self.weight.float() + self.zero_centered_gamma
        return nn.functional.rms_norm(x.float(), tuple(weight.shape), weight, self.eps).to(x.dtype)


class LayerNorm(RMSNorm):
    """Subtracts the mean and divides by the deviation, in float32."""

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(normalized_shape, eps, **kwargs)
        self.bias = nn.Parameter(torch.zeros_like(self.weight))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return `x` normalised, in its dtype."""
        weight = self.weight.float() + self.zero_centered_gamma
        return nn.functional.layer_norm(x.float(), tuple(weight.shape), weight, self.bias.float(), self.eps).to(x.dtype)
