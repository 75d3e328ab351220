"""Attention and rotary positions of transformer_engine.pytorch."""

from .dot_product_attention import DotProductAttention as DotProductAttention
from .rope import apply_rotary_pos_emb as apply_rotary_pos_emb
