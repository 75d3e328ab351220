"""Modules of transformer_engine.pytorch, in the dtype of their weights."""

from .attention import DotProductAttention as DotProductAttention
from .module import LayerNorm as LayerNorm
from .module import Linear as Linear
from .module import RMSNorm as RMSNorm
