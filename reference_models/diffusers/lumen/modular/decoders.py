import torch
from diffusers.models import AutoencoderKL
from diffusers.modular_pipelines.modular_pipeline import (
    ModularPipelineBlocks,
    PipelineState,
)
from diffusers.modular_pipelines.modular_pipeline_utils import ComponentSpec, InputParam, OutputParam

from .modular_pipeline import LumenModularPipeline


class LumenDecodeStep(ModularPipelineBlocks):
    model_name = "lumen"

    @property
    def description(self) -> str:
        return "Decodes the latents to the output."

    @property
    def expected_components(self) -> list[ComponentSpec]:
        return [
            ComponentSpec("vae", AutoencoderKL),
        ]

    @property
    def inputs(self) -> list[InputParam]:
        return [
            InputParam("latents", type_hint=torch.Tensor | None),
            InputParam("output_type", type_hint=str, default="pil"),
        ]

    @property
    def intermediate_outputs(self) -> list[OutputParam]:
        return [
            OutputParam("images"),
        ]

    @torch.no_grad()
    def __call__(
        self, components: LumenModularPipeline, state: PipelineState
    ) -> tuple[LumenModularPipeline, PipelineState]:
        block_state = self.get_block_state(state)
        if block_state.output_type == "latent":
            image = block_state.latents
        else:
            block_state.latents = block_state.latents / components.vae.config.scaling_factor + (
                components.vae.config.shift_factor or 0.0
            )
            image = components.vae.decode(block_state.latents.to(components.vae.dtype), return_dict=False)[0]
            image = components.image_processor.postprocess(image, output_type=block_state.output_type)
        block_state.images = image
        self.set_block_state(state, block_state)
        return components, state
