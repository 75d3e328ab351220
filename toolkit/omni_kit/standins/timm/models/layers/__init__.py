"""Location of timm's layers before 0.9."""

from ...layers import DropPath as DropPath
from ...layers import GluMlp as GluMlp
from ...layers import LayerNorm2d as LayerNorm2d
from ...layers import Mlp as Mlp
from ...layers import PatchEmbed as PatchEmbed
from ...layers import SwiGLU as SwiGLU
from ...layers import drop_path as drop_path
from ...layers import to_2tuple as to_2tuple
from ...layers import to_3tuple as to_3tuple
from ...layers import trunc_normal_ as trunc_normal_
from ...layers import use_fused_attn as use_fused_attn
