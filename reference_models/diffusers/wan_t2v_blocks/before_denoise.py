import torch
from diffusers.models import AutoencoderKLWan, WanTransformer3DModel
from diffusers.modular_pipelines.modular_pipeline import (
    ModularPipelineBlocks,
    PipelineState,
)
from diffusers.modular_pipelines.modular_pipeline_utils import ComponentSpec, ConfigSpec, InputParam, OutputParam
from diffusers.schedulers import FlowMatchEulerDiscreteScheduler
from diffusers.utils.torch_utils import randn_tensor

from .modular_pipeline import WanT2vBlocksModularPipeline


def prepare_latents(
    components,
    batch_size: int,
    num_channels_latents: int = 16,
    height: int = 480,
    width: int = 832,
    num_frames: int = 81,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    generator: torch.Generator | list[torch.Generator] | None = None,
    latents: torch.Tensor | None = None,
) -> torch.Tensor:
    if latents is not None:
        return latents.to(device=device, dtype=dtype)

    num_latent_frames = (num_frames - 1) // components.vae_scale_factor_temporal + 1
    shape = (
        batch_size,
        num_channels_latents,
        num_latent_frames,
        int(height) // components.vae_scale_factor_spatial,
        int(width) // components.vae_scale_factor_spatial,
    )
    if isinstance(generator, list) and len(generator) != batch_size:
        raise ValueError(
            f"You have passed a list of generators of length {len(generator)}, but requested an effective batch"
            f" size of {batch_size}. Make sure the batch size matches the length of the generators."
        )

    latents = randn_tensor(shape, generator=generator, device=device, dtype=dtype)
    return latents


class WanT2vBlocksSetTimestepsStep(ModularPipelineBlocks):
    model_name = "wan_t2v_blocks"

    @property
    def description(self) -> str:
        return "Sets the scheduler's timesteps."

    @property
    def expected_components(self) -> list[ComponentSpec]:
        return [
            ComponentSpec("scheduler", FlowMatchEulerDiscreteScheduler),
        ]

    @property
    def inputs(self) -> list[InputParam]:
        return [
            InputParam("device"),
            InputParam("num_inference_steps", type_hint=int, default=50),
        ]

    @property
    def intermediate_outputs(self) -> list[OutputParam]:
        return [
            OutputParam("timesteps"),
        ]

    @torch.no_grad()
    def __call__(
        self, components: WanT2vBlocksModularPipeline, state: PipelineState
    ) -> tuple[WanT2vBlocksModularPipeline, PipelineState]:
        block_state = self.get_block_state(state)
        # 4. Prepare timesteps
        components.scheduler.set_timesteps(block_state.num_inference_steps, device=block_state.device)
        block_state.timesteps = components.scheduler.timesteps
        self.set_block_state(state, block_state)
        return components, state


class WanT2vBlocksPrepareLatentsStep(ModularPipelineBlocks):
    model_name = "wan_t2v_blocks"

    @property
    def description(self) -> str:
        return "Draws the initial noise."

    @property
    def expected_components(self) -> list[ComponentSpec]:
        return [
            ComponentSpec("vae", AutoencoderKLWan),
            ComponentSpec("transformer", WanTransformer3DModel),
            ComponentSpec("transformer_2", WanTransformer3DModel),
        ]

    @property
    def inputs(self) -> list[InputParam]:
        return [
            InputParam("batch_size"),
            InputParam("device"),
            InputParam("generator", type_hint=torch.Generator | list[torch.Generator] | None),
            InputParam("height", type_hint=int, default=480),
            InputParam("latents", type_hint=torch.Tensor | None),
            InputParam("num_frames", type_hint=int, default=81),
            InputParam("num_videos_per_prompt", type_hint=int | None, default=1),
            InputParam("width", type_hint=int, default=832),
        ]

    @property
    def intermediate_outputs(self) -> list[OutputParam]:
        return [
            OutputParam("latents"),
        ]

    @torch.no_grad()
    def __call__(
        self, components: WanT2vBlocksModularPipeline, state: PipelineState
    ) -> tuple[WanT2vBlocksModularPipeline, PipelineState]:
        block_state = self.get_block_state(state)
        # 5. Prepare latent variables
        num_channels_latents = (
            components.transformer.config.in_channels
            if components.transformer is not None
            else components.transformer_2.config.in_channels
        )
        block_state.latents = prepare_latents(
            components,
            block_state.batch_size * block_state.num_videos_per_prompt,
            num_channels_latents,
            block_state.height,
            block_state.width,
            block_state.num_frames,
            torch.float32,
            block_state.device,
            block_state.generator,
            block_state.latents,
        )
        self.set_block_state(state, block_state)
        return components, state


class WanT2vBlocksPrepareConditionsStep(ModularPipelineBlocks):
    model_name = "wan_t2v_blocks"

    @property
    def description(self) -> str:
        return "Prepares the denoiser's inputs other than latents and prompts."

    @property
    def expected_components(self) -> list[ComponentSpec]:
        return [
            ComponentSpec("scheduler", FlowMatchEulerDiscreteScheduler),
        ]

    @property
    def expected_configs(self) -> list[ConfigSpec]:
        return [
            ConfigSpec("boundary_ratio", default=None),
        ]

    @property
    def inputs(self) -> list[InputParam]:
        return [
            InputParam("device"),
            InputParam("latents", type_hint=torch.Tensor | None),
            InputParam("num_inference_steps", type_hint=int, default=50),
            InputParam("timesteps"),
        ]

    @property
    def intermediate_outputs(self) -> list[OutputParam]:
        return [
            OutputParam("boundary_timestep"),
            OutputParam("mask"),
            OutputParam("num_warmup_steps"),
        ]

    @torch.no_grad()
    def __call__(
        self, components: WanT2vBlocksModularPipeline, state: PipelineState
    ) -> tuple[WanT2vBlocksModularPipeline, PipelineState]:
        block_state = self.get_block_state(state)
        block_state.mask = torch.ones(block_state.latents.shape, dtype=torch.float32, device=block_state.device)

        # 6. Denoising loop
        block_state.num_warmup_steps = (
            len(block_state.timesteps) - block_state.num_inference_steps * components.scheduler.order
        )
        components._num_timesteps = len(block_state.timesteps)

        if components.config.boundary_ratio is not None:
            block_state.boundary_timestep = (
                components.config.boundary_ratio * components.scheduler.config.num_train_timesteps
            )
        else:
            block_state.boundary_timestep = None
        self.set_block_state(state, block_state)
        return components, state
