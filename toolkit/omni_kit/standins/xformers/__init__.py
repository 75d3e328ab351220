"""Operations of xformers."""

from . import ops as ops
