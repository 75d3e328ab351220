import inspect

import numpy as np
import torch
from diffusers.models import AutoencoderKL
from diffusers.modular_pipelines.modular_pipeline import (
    ModularPipelineBlocks,
    PipelineState,
)
from diffusers.modular_pipelines.modular_pipeline_utils import ComponentSpec, InputParam, OutputParam
from diffusers.schedulers import FlowMatchEulerDiscreteScheduler
from diffusers.utils.torch_utils import randn_tensor

from ..transformer_lumen import LumenTransformer2DModel
from .modular_pipeline import LumenModularPipeline


def prepare_latents(
    components, batch_size, num_channels_latents, height, width, dtype, device, generator, latents=None
):
    """Return noise of the shape of latents, or the latents that are passed."""
    if latents is not None:
        return latents.to(device=device, dtype=dtype)
    shape = (
        batch_size,
        num_channels_latents,
        height // components.vae_scale_factor,
        width // components.vae_scale_factor,
    )
    if isinstance(generator, list) and len(generator) != batch_size:
        raise ValueError(f"There are {len(generator)} generators for a batch of {batch_size}.")
    return randn_tensor(shape, generator=generator, device=device, dtype=dtype)


class LumenPrepareLatentsStep(ModularPipelineBlocks):
    model_name = "lumen"

    @property
    def description(self) -> str:
        return "Draws the initial noise."

    @property
    def expected_components(self) -> list[ComponentSpec]:
        return [
            ComponentSpec("transformer", LumenTransformer2DModel),
            ComponentSpec("vae", AutoencoderKL),
        ]

    @property
    def inputs(self) -> list[InputParam]:
        return [
            InputParam("device"),
            InputParam("generator", type_hint=torch.Generator | list[torch.Generator] | None),
            InputParam("height", type_hint=int, default=1024),
            InputParam("latents", type_hint=torch.Tensor | None),
            InputParam("prompt_embeds", type_hint=torch.Tensor | None),
            InputParam("width", type_hint=int, default=1024),
        ]

    @property
    def intermediate_outputs(self) -> list[OutputParam]:
        return [
            OutputParam("latents"),
        ]

    @torch.no_grad()
    def __call__(
        self, components: LumenModularPipeline, state: PipelineState
    ) -> tuple[LumenModularPipeline, PipelineState]:
        block_state = self.get_block_state(state)
        block_state.latents = prepare_latents(
            components,
            len(block_state.prompt_embeds),
            components.transformer.config.in_channels,
            block_state.height,
            block_state.width,
            block_state.prompt_embeds.dtype,
            block_state.device,
            block_state.generator,
            block_state.latents,
        )
        self.set_block_state(state, block_state)
        return components, state


class LumenSetTimestepsStep(ModularPipelineBlocks):
    model_name = "lumen"

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
            InputParam("num_inference_steps", type_hint=int, default=28),
            InputParam("sigmas", type_hint=list[float] | None),
        ]

    @property
    def intermediate_outputs(self) -> list[OutputParam]:
        return []

    @torch.no_grad()
    def __call__(
        self, components: LumenModularPipeline, state: PipelineState
    ) -> tuple[LumenModularPipeline, PipelineState]:
        block_state = self.get_block_state(state)
        block_state.sigmas = (
            np.linspace(1.0, 1 / block_state.num_inference_steps, block_state.num_inference_steps)
            if block_state.sigmas is None
            else block_state.sigmas
        )
        accepts_sigmas = "sigmas" in inspect.signature(components.scheduler.set_timesteps).parameters
        if accepts_sigmas:
            components.scheduler.set_timesteps(sigmas=block_state.sigmas, device=block_state.device)
        else:
            components.scheduler.set_timesteps(block_state.num_inference_steps, device=block_state.device)
        self.set_block_state(state, block_state)
        return components, state


class LumenPrepareConditionsStep(ModularPipelineBlocks):
    model_name = "lumen"

    @property
    def description(self) -> str:
        return "Prepares the denoiser's inputs other than latents and prompts."

    @property
    def expected_components(self) -> list[ComponentSpec]:
        return [
            ComponentSpec("scheduler", FlowMatchEulerDiscreteScheduler),
        ]

    @property
    def inputs(self) -> list[InputParam]:
        return []

    @property
    def intermediate_outputs(self) -> list[OutputParam]:
        return [
            OutputParam("timesteps"),
        ]

    @torch.no_grad()
    def __call__(
        self, components: LumenModularPipeline, state: PipelineState
    ) -> tuple[LumenModularPipeline, PipelineState]:
        block_state = self.get_block_state(state)
        block_state.timesteps = components.scheduler.timesteps
        components._num_timesteps = len(block_state.timesteps)
        self.set_block_state(state, block_state)
        return components, state
