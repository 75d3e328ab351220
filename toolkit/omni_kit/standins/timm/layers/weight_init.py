"""Initial values of weights."""

import torch


def trunc_normal_(
    tensor: torch.Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> torch.Tensor:
    """Fill a tensor from a normal distribution that is cut off at `a` and `b`."""
    return torch.nn.init.trunc_normal_(tensor, mean, std, a, b)
