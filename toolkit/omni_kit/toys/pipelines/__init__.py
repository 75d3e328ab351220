"""Small pipelines of diffusers, made from a class alone: nothing is downloaded."""

from omni_kit.toys.pipelines.fitting import GIVE_ONE, toy_pipeline

__all__ = ["GIVE_ONE", "toy_pipeline"]
