"""Functions of torchvision that VeOmni's data pipeline calls, in plain torch."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import torch
from torch import nn


class InterpolationMode(Enum):
    """torchvision's names of the modes that the pipeline uses."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


def resize(
    image: torch.Tensor,
    size: Sequence[int],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    antialias: bool = True,
    **_: Any,
) -> torch.Tensor:
    """Return images [..., 3, rows, columns] of another size, in their own dtype."""
    smooth = interpolation is not InterpolationMode.NEAREST
    resized = nn.functional.interpolate(
        image.float(), size=tuple(size), mode=interpolation.value, antialias=antialias and smooth
    )
    whole = not image.dtype.is_floating_point
    return (resized.round().clamp(0, 255) if whole else resized).to(image.dtype)
