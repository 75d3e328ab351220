"""Named tensors: inputs, outputs and parameters of the sides."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Tensors = dict[str, "torch.Tensor"]
