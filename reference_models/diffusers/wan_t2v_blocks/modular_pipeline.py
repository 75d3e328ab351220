from diffusers.loaders import WanLoraLoaderMixin
from diffusers.modular_pipelines.modular_pipeline import ModularPipeline, ModularPipelineBlocks
from diffusers.video_processor import VideoProcessor


class WanT2vBlocksModularPipeline(ModularPipeline, WanLoraLoaderMixin):
    """
    WanPipeline, in blocks.
    """

    default_blocks_name = "WanT2vBlocksBlocks"

    def __init__(self, blocks: ModularPipelineBlocks | None = None, *args, **kwargs):
        if blocks is None:  # diffusers finds default blocks in its own package alone
            from .modular_blocks_wan_t2v_blocks import WanT2vBlocksBlocks

            blocks = WanT2vBlocksBlocks()
        super().__init__(blocks, *args, **kwargs)

    _callback_tensor_inputs = ["latents", "prompt_embeds", "negative_prompt_embeds"]

    @property
    def do_classifier_free_guidance(self):
        return self._guidance_scale > 1.0

    @property
    def interrupt(self):
        return self._interrupt

    @property
    def vae_scale_factor_spatial(self):
        return self.vae.config.scale_factor_spatial if getattr(self, "vae", None) else 8

    @property
    def vae_scale_factor_temporal(self):
        return self.vae.config.scale_factor_temporal if getattr(self, "vae", None) else 4

    @property
    def video_processor(self):
        return VideoProcessor(vae_scale_factor=self.vae_scale_factor_spatial)
