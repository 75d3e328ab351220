"""timm's layers for transformers."""

from .attention import Attention as Attention
from .attention import use_fused_attn as use_fused_attn
from .drop import DropPath as DropPath
from .drop import drop_path as drop_path
from .helpers import to_2tuple as to_2tuple
from .helpers import to_3tuple as to_3tuple
from .layer_scale import LayerScale as LayerScale
from .mlp import GluMlp as GluMlp
from .mlp import Mlp as Mlp
from .mlp import SwiGLU as SwiGLU
from .norm import LayerNorm2d as LayerNorm2d
from .norm import RmsNorm as RmsNorm
from .patch_embed import PatchEmbed as PatchEmbed
from .weight_init import trunc_normal_ as trunc_normal_
