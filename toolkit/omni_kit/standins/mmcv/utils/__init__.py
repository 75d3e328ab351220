"""Loggers and registries of mmcv."""

import logging

from ...mmengine.registry import Registry as Registry
from ...mmengine.registry import build_from_cfg as build_from_cfg


def get_logger(name: str, log_file: str | None = None, log_level: int = logging.INFO) -> logging.Logger:
    """Return a logger."""
    return logging.getLogger(name)
