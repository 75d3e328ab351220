"""A logger."""

import logging

logger = logging.getLogger("loguru")
