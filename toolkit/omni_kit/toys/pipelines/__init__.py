"""Small pipelines of diffusers, made from a class alone: nothing is downloaded."""

from omni_kit.toys.pipelines.fitting import toy_pipeline

__all__ = ["toy_pipeline"]
