"""Modular pipelines: blocks that are made of the statements of a pipeline that diffusers has."""
