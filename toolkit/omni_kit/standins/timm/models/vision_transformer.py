"""Block of timm's vision transformer, and where its layers were imported from."""

from collections.abc import Callable

import torch
from torch import nn

from ..layers import Attention as Attention
from ..layers import DropPath as DropPath
from ..layers import GluMlp as GluMlp
from ..layers import LayerScale as LayerScale
from ..layers import Mlp as Mlp
from ..layers import PatchEmbed as PatchEmbed
from ..layers import RmsNorm as RmsNorm
from ..layers import SwiGLU as SwiGLU
from ..layers import drop_path as drop_path
from ..layers import to_2tuple as to_2tuple
from ..layers import to_3tuple as to_3tuple
from ..layers import trunc_normal_ as trunc_normal_
from ..layers import use_fused_attn as use_fused_attn


class Block(nn.Module):
    """Attention and a feed-forward, each behind a norm and added to its input."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = False,
        qk_norm: bool = False,
        proj_bias: bool = True,
        proj_drop: float = 0.0,
        attn_drop: float = 0.0,
        init_values: float | None = None,
        drop_path: float = 0.0,
        act_layer: Callable[..., nn.Module] = nn.GELU,
        norm_layer: Callable[..., nn.Module] = nn.LayerNorm,
        mlp_layer: Callable[..., nn.Module] = Mlp,
    ) -> None:
        super().__init__()
        self.norm1 = norm_layer(dim)
        self.attn = Attention(dim, num_heads, qkv_bias, qk_norm, proj_bias, attn_drop, proj_drop, norm_layer)
        self.ls1 = LayerScale(dim, init_values) if init_values else nn.Identity()
        self.drop_path1 = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()
        self.norm2 = norm_layer(dim)
        self.mlp = mlp_layer(dim, int(dim * mlp_ratio), act_layer=act_layer, bias=proj_bias, drop=proj_drop)
        self.ls2 = LayerScale(dim, init_values) if init_values else nn.Identity()
        self.drop_path2 = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()

    def forward(self, x: torch.Tensor, attn_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the tokens `x`, [B, N, C], behind the block."""
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x), attn_mask)))
        x = x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))
        return x
