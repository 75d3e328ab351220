"""Lumen for diffusers: a transformer, its pipeline, and the conversion of its authors' checkpoints."""

from diffusers.loaders.single_file_model import SINGLE_FILE_LOADABLE_CLASSES

from .conversion import convert_lumen_transformer_checkpoint_to_diffusers
from .pipeline_lumen import LumenPipeline
from .pipeline_output import LumenPipelineOutput
from .transformer_lumen import LumenTransformer2DModel

__all__ = [
    "LumenPipelineOutput",
    "LumenPipeline",
    "LumenTransformer2DModel",
    "convert_lumen_transformer_checkpoint_to_diffusers",
]

# What from_single_file makes of a file of the authors.
SINGLE_FILE_LOADABLE_CLASSES.setdefault(
    "LumenTransformer2DModel",
    {"checkpoint_mapping_fn": convert_lumen_transformer_checkpoint_to_diffusers, "default_subfolder": "transformer"},
)
