import torch
from diffusers.models import AutoencoderKLWan
from diffusers.modular_pipelines.modular_pipeline import (
    ModularPipelineBlocks,
    PipelineState,
)
from diffusers.modular_pipelines.modular_pipeline_utils import ComponentSpec, InputParam, OutputParam

from .modular_pipeline import WanT2vBlocksModularPipeline


class WanT2vBlocksDecodeStep(ModularPipelineBlocks):
    model_name = "wan_t2v_blocks"

    @property
    def description(self) -> str:
        return "Decodes the latents to the output."

    @property
    def expected_components(self) -> list[ComponentSpec]:
        return [
            ComponentSpec("vae", AutoencoderKLWan),
        ]

    @property
    def inputs(self) -> list[InputParam]:
        return [
            InputParam("latents", type_hint=torch.Tensor | None),
            InputParam("output_type", type_hint=str | None, default="np"),
        ]

    @property
    def intermediate_outputs(self) -> list[OutputParam]:
        return [
            OutputParam("frames"),
        ]

    @torch.no_grad()
    def __call__(
        self, components: WanT2vBlocksModularPipeline, state: PipelineState
    ) -> tuple[WanT2vBlocksModularPipeline, PipelineState]:
        block_state = self.get_block_state(state)
        components._current_timestep = None

        if not block_state.output_type == "latent":
            block_state.latents = block_state.latents.to(components.vae.dtype)
            latents_mean = (
                torch.tensor(components.vae.config.latents_mean)
                .view(1, components.vae.config.z_dim, 1, 1, 1)
                .to(block_state.latents.device, block_state.latents.dtype)
            )
            latents_std = 1.0 / torch.tensor(components.vae.config.latents_std).view(
                1, components.vae.config.z_dim, 1, 1, 1
            ).to(block_state.latents.device, block_state.latents.dtype)
            block_state.latents = block_state.latents / latents_std + latents_mean
            video = components.vae.decode(block_state.latents, return_dict=False)[0]
            video = components.video_processor.postprocess_video(video, output_type=block_state.output_type)
        else:
            video = block_state.latents
        block_state.frames = video
        self.set_block_state(state, block_state)
        return components, state
