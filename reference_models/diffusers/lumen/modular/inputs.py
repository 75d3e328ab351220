import torch
from diffusers.configuration_utils import FrozenDict
from diffusers.guiders import ClassifierFreeGuidance
from diffusers.models import AutoencoderKL
from diffusers.modular_pipelines.modular_pipeline import (
    ModularPipelineBlocks,
    PipelineState,
)
from diffusers.modular_pipelines.modular_pipeline_utils import ComponentSpec, InputParam, OutputParam

from .modular_pipeline import LumenModularPipeline


def check_inputs(components, prompt, prompt_embeds, height, width, callback_on_step_end_tensor_inputs):
    """Raise `ValueError` for invalid inputs."""
    if (prompt is None) == (prompt_embeds is None):
        raise ValueError("Provide either `prompt` or `prompt_embeds`, and not both.")
    if height % components.vae_scale_factor or width % components.vae_scale_factor:
        raise ValueError(f"`height` and `width` must be divisible by {components.vae_scale_factor}.")
    unknown = set(callback_on_step_end_tensor_inputs) - set(components._callback_tensor_inputs)
    if unknown:
        raise ValueError(
            f"`callback_on_step_end_tensor_inputs` has {sorted(unknown)}, which are not available in a step."
        )


class LumenInputStep(ModularPipelineBlocks):
    model_name = "lumen"

    @property
    def description(self) -> str:
        return "Checks inputs and fills in defaults."

    @property
    def expected_components(self) -> list[ComponentSpec]:
        return [
            ComponentSpec("vae", AutoencoderKL),
            ComponentSpec(
                "guider",
                ClassifierFreeGuidance,
                config=FrozenDict({"guidance_scale": 4.0}),
                default_creation_method="from_config",
            ),
        ]

    @property
    def inputs(self) -> list[InputParam]:
        return [
            InputParam("callback_on_step_end_tensor_inputs", type_hint=list[str], default=["latents"]),
            InputParam("height", type_hint=int, default=1024),
            InputParam("prompt", type_hint=str | list[str] | None),
            InputParam("prompt_embeds", type_hint=torch.Tensor | None),
            InputParam("width", type_hint=int, default=1024),
        ]

    @property
    def intermediate_outputs(self) -> list[OutputParam]:
        return []

    @torch.no_grad()
    def __call__(
        self, components: LumenModularPipeline, state: PipelineState
    ) -> tuple[LumenModularPipeline, PipelineState]:
        block_state = self.get_block_state(state)
        check_inputs(
            components,
            block_state.prompt,
            block_state.prompt_embeds,
            block_state.height,
            block_state.width,
            block_state.callback_on_step_end_tensor_inputs,
        )
        components._guidance_scale = components.guider.guidance_scale
        components._interrupt = False
        self.set_block_state(state, block_state)
        return components, state
