"""Attention and slices as xformers has them."""

from . import fmha as fmha
from .fmha import LowerTriangularMask as LowerTriangularMask
from .fmha import memory_efficient_attention as memory_efficient_attention
from .unbind import unbind as unbind
