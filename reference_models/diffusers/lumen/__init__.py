"""Lumen for diffusers: a transformer, its pipeline, and the conversion of its authors' checkpoints."""

from diffusers.loaders.single_file_utils import load_single_file_checkpoint

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


def _from_single_file(cls, pretrained_model_link_or_path_or_dict, config, subfolder=None, torch_dtype=None, **kwargs):
    """A model from a file of the authors, with the config that is at `config`.

    diffusers' own method of this name looks for a class in diffusers itself, which no plugin's class is in.
    """
    checkpoint = pretrained_model_link_or_path_or_dict
    if not isinstance(checkpoint, dict):
        checkpoint = load_single_file_checkpoint(checkpoint, **kwargs)
    model = cls.from_config(cls.load_config(config, subfolder=subfolder))
    model.load_state_dict(convert_lumen_transformer_checkpoint_to_diffusers(dict(checkpoint)))
    return model.to(torch_dtype or model.dtype).eval()


LumenTransformer2DModel.from_single_file = classmethod(_from_single_file)
