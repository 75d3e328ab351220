"""Tells the diffusion transformers among VeOmni's model directories: those that stand beside a class of diffusers."""

from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.targets.veomni.model_dir import ModelDir, find_model_dir
from omni_kit.upstream.diffusers_classes import is_diffusers_class

_FAMILY = "veomni.models.diffusers"


def find_transformer(path: Path) -> ModelDir:
    """The directory at `path`, or, where it is that of a whole pipeline, the one of its transformer.

    Raises:
        BadInput: as `find_model_dir`; or it is of a diffusion model of which diffusers has no class.
    """
    try:
        found = find_model_dir(path)
    except BadInput:
        inside = [_model_dir(part) for part in _packages(path)]
        if len(transformers := [part for part in inside if part and denoiser_class(part)]) != 1:
            raise
        return transformers[0]
    if found.import_name.startswith(_FAMILY) and not denoiser_class(found):
        name = next(iter(found.registered))
        raise BadInput(f"{found.path} registers {name}, of which the installed diffusers has no class to compare with")
    return found


def denoiser_class(found: ModelDir) -> str:
    """The class of diffusers that a directory registers a model for; empty where it is a model of another kind."""
    return next((key for key in found.registered if is_diffusers_class(key)), "")


def _packages(path: Path) -> list[Path]:
    return sorted(init.parent for init in path.glob("*/__init__.py"))


def _model_dir(path: Path) -> ModelDir | None:
    try:
        return find_model_dir(path)
    except BadInput:
        return None
