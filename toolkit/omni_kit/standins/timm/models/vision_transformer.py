"""Location of the layers of timm's vision transformer."""

from ..layers import Attention as Attention
from ..layers import DropPath as DropPath
from ..layers import LayerScale as LayerScale
from ..layers import Mlp as Mlp
from ..layers import PatchEmbed as PatchEmbed
from ..layers import trunc_normal_ as trunc_normal_
