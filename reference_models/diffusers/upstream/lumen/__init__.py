"""Lumen: a small text-to-image flow transformer."""

from .model import Lumen
from .sampling import get_sigmas, sample

__all__ = ["Lumen", "get_sigmas", "sample"]
