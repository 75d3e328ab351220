from diffusers.image_processor import VaeImageProcessor
from diffusers.loaders import FromSingleFileMixin
from diffusers.modular_pipelines.modular_pipeline import ModularPipeline, ModularPipelineBlocks


class LumenModularPipeline(ModularPipeline, FromSingleFileMixin):
    """
    LumenPipeline, in blocks.
    """

    default_blocks_name = "LumenBlocks"

    def __init__(self, blocks: ModularPipelineBlocks | None = None, *args, **kwargs):
        if blocks is None:  # diffusers finds default blocks in its own package alone
            from .modular_blocks_lumen import LumenBlocks

            blocks = LumenBlocks()
        super().__init__(blocks, *args, **kwargs)

    _callback_tensor_inputs = ["latents", "prompt_embeds"]

    @property
    def do_classifier_free_guidance(self):
        return self._guidance_scale > 1.0

    @property
    def image_processor(self):
        return VaeImageProcessor(vae_scale_factor=self.vae_scale_factor)

    @property
    def interrupt(self):
        return self._interrupt

    @property
    def vae_scale_factor(self):
        return 2 ** (len(self.vae.config.block_out_channels) - 1) if getattr(self, "vae", None) else 8
