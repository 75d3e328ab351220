"""Location of the layers of timm's vision transformer."""

from ..layers import Attention as Attention
from ..layers import DropPath as DropPath
from ..layers import GluMlp as GluMlp
from ..layers import LayerScale as LayerScale
from ..layers import Mlp as Mlp
from ..layers import PatchEmbed as PatchEmbed
from ..layers import RmsNorm as RmsNorm
from ..layers import SwiGLU as SwiGLU
from ..layers import drop_path as drop_path
from ..layers import to_1tuple as to_1tuple
from ..layers import to_2tuple as to_2tuple
from ..layers import to_3tuple as to_3tuple
from ..layers import trunc_normal_ as trunc_normal_
from ..layers import use_fused_attn as use_fused_attn
