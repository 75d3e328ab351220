from diffusers.modular_pipelines.modular_pipeline import SequentialPipelineBlocks

from .before_denoise import (
    WanT2vBlocksPrepareConditionsStep,
    WanT2vBlocksPrepareLatentsStep,
    WanT2vBlocksSetTimestepsStep,
)
from .decoders import WanT2vBlocksDecodeStep
from .denoise import WanT2vBlocksDenoiseStep
from .encoders import WanT2vBlocksTextEncoderStep
from .inputs import WanT2vBlocksInputStep


class WanT2vBlocksBlocks(SequentialPipelineBlocks):
    model_name = "wan_t2v_blocks"
    block_classes = [
        WanT2vBlocksInputStep,
        WanT2vBlocksTextEncoderStep,
        WanT2vBlocksSetTimestepsStep,
        WanT2vBlocksPrepareLatentsStep,
        WanT2vBlocksPrepareConditionsStep,
        WanT2vBlocksDenoiseStep,
        WanT2vBlocksDecodeStep,
    ]
    block_names = [
        "input",
        "text_encoder",
        "set_timesteps",
        "prepare_latents",
        "prepare_conditions",
        "denoise",
        "decode",
    ]

    @property
    def description(self) -> str:
        return "What WanPipeline does, block by block."
