"""Modules of transformer_engine that models are built from."""

from . import pytorch as pytorch
