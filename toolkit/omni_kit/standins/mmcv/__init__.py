"""Registries of mmcv."""

from .utils import Registry as Registry
from .utils import build_from_cfg as build_from_cfg
