"""Tells the diffusion transformers among VeOmni's model directories: those that are next to a class of diffusers."""

from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.targets.veomni.model_dir import ModelDir, find_model_dir
from omni_kit.upstream.diffusers.classes import is_diffusers_class


def find_transformer(path: Path) -> ModelDir:
    """Return the directory at `path`.

    Raises:
        BadInput: as `find_model_dir`; or it is of a diffusion model of which diffusers has no class.
    """
    found = find_model_dir(path)
    if not denoiser_class(found):
        name = next(iter(found.registered))
        raise BadInput(f"{found.path} registers {name}, of which the installed diffusers has no class to compare with")
    return found


def denoiser_class(found: ModelDir) -> str:
    """Return the class of diffusers that a directory registers a model for; empty if it is a model of another kind."""
    return next((key for key in found.registered if is_diffusers_class(key)), "")
