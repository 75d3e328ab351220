"""Named tensors: what sides are fed, what they answer and what they hold."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Tensors = dict[str, "torch.Tensor"]
