"""Registries of mmengine."""

from .registry import Registry as Registry
from .registry import build_from_cfg as build_from_cfg
