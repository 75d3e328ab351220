"""Pictures as rows of patches."""

from collections.abc import Callable
from typing import cast

import torch
from torch import nn

from .helpers import to_2tuple


class PatchEmbed(nn.Module):
    """A convolution that makes one token of each patch."""

    def __init__(
        self,
        img_size: int | tuple[int, int] | None = 224,
        patch_size: int | tuple[int, int] = 16,
        in_chans: int = 3,
        embed_dim: int = 768,
        norm_layer: Callable[..., nn.Module] | None = None,
        flatten: bool = True,
        bias: bool = True,
        strict_img_size: bool = True,
        **kwargs: object,
    ) -> None:
        super().__init__()
        self.patch_size = to_2tuple(patch_size)
        self.img_size = to_2tuple(img_size) if img_size is not None else None
        self.grid_size = tuple(s // p for s, p in zip(self.img_size, self.patch_size)) if self.img_size else None
        self.num_patches = self.grid_size[0] * self.grid_size[1] if self.grid_size else None
        self.flatten = flatten
        self.strict_img_size = strict_img_size
        self.proj = nn.Conv2d(in_chans, embed_dim, kernel_size=self.patch_size, stride=self.patch_size, bias=bias)
        self.norm = norm_layer(embed_dim) if norm_layer else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tokens of `x`, [B, C, H, W]: [B, N, D], or a picture of them."""
        if self.img_size is not None and self.strict_img_size and tuple(x.shape[-2:]) != self.img_size:
            raise AssertionError(f"input size {tuple(x.shape[-2:])} doesn't match model {self.img_size}")
        x = self.proj(x)
        if self.flatten:
            x = x.flatten(2).transpose(1, 2)
        return cast(torch.Tensor, self.norm(x))
