from typing import Any, Callable

import torch
from diffusers.callbacks import MultiPipelineCallbacks, PipelineCallback
from diffusers.configuration_utils import FrozenDict
from diffusers.guiders import ClassifierFreeGuidance
from diffusers.models import AutoencoderKLWan, WanTransformer3DModel
from diffusers.modular_pipelines.modular_pipeline import (
    ModularPipelineBlocks,
    PipelineState,
)
from diffusers.modular_pipelines.modular_pipeline_utils import ComponentSpec, ConfigSpec, InputParam, OutputParam
from diffusers.utils import logging

from .modular_pipeline import WanT2vBlocksModularPipeline

logger = logging.get_logger(__name__)  # pylint: disable=invalid-name


def check_inputs(
    components,
    prompt,
    negative_prompt,
    height,
    width,
    prompt_embeds=None,
    negative_prompt_embeds=None,
    callback_on_step_end_tensor_inputs=None,
    guidance_scale_2=None,
):
    if height % 16 != 0 or width % 16 != 0:
        raise ValueError(f"`height` and `width` have to be divisible by 16 but are {height} and {width}.")

    if callback_on_step_end_tensor_inputs is not None and not all(
        k in components._callback_tensor_inputs for k in callback_on_step_end_tensor_inputs
    ):
        raise ValueError(
            f"`callback_on_step_end_tensor_inputs` has to be in {components._callback_tensor_inputs}, but found {[k for k in callback_on_step_end_tensor_inputs if k not in components._callback_tensor_inputs]}"
        )

    if prompt is not None and prompt_embeds is not None:
        raise ValueError(
            f"Cannot forward both `prompt`: {prompt} and `prompt_embeds`: {prompt_embeds}. Please make sure to"
            " only forward one of the two."
        )
    elif negative_prompt is not None and negative_prompt_embeds is not None:
        raise ValueError(
            f"Cannot forward both `negative_prompt`: {negative_prompt} and `negative_prompt_embeds`: {negative_prompt_embeds}. Please make sure to"
            " only forward one of the two."
        )
    elif prompt is None and prompt_embeds is None:
        raise ValueError(
            "Provide either `prompt` or `prompt_embeds`. Cannot leave both `prompt` and `prompt_embeds` undefined."
        )
    elif prompt is not None and (not isinstance(prompt, str) and not isinstance(prompt, list)):
        raise ValueError(f"`prompt` has to be of type `str` or `list` but is {type(prompt)}")
    elif negative_prompt is not None and (
        not isinstance(negative_prompt, str) and not isinstance(negative_prompt, list)
    ):
        raise ValueError(f"`negative_prompt` has to be of type `str` or `list` but is {type(negative_prompt)}")

    if components.config.boundary_ratio is None and guidance_scale_2 is not None:
        raise ValueError("`guidance_scale_2` is only supported when the pipeline's `boundary_ratio` is not None.")


class WanT2vBlocksInputStep(ModularPipelineBlocks):
    model_name = "wan_t2v_blocks"

    @property
    def description(self) -> str:
        return "Checks inputs and fills in defaults."

    @property
    def expected_components(self) -> list[ComponentSpec]:
        return [
            ComponentSpec("vae", AutoencoderKLWan),
            ComponentSpec("transformer", WanTransformer3DModel),
            ComponentSpec("transformer_2", WanTransformer3DModel),
            ComponentSpec(
                "guider",
                ClassifierFreeGuidance,
                config=FrozenDict({"guidance_scale": 5.0}),
                default_creation_method="from_config",
            ),
            ComponentSpec(
                "guider_2",
                ClassifierFreeGuidance,
                config=FrozenDict({"guidance_scale": 5.0}),
                default_creation_method="from_config",
            ),
        ]

    @property
    def expected_configs(self) -> list[ConfigSpec]:
        return [
            ConfigSpec("boundary_ratio", default=None),
        ]

    @property
    def inputs(self) -> list[InputParam]:
        return [
            InputParam("attention_kwargs", type_hint=dict[str, Any] | None),
            InputParam(
                "callback_on_step_end",
                type_hint=Callable[[int, int], None] | PipelineCallback | MultiPipelineCallbacks | None,
            ),
            InputParam("callback_on_step_end_tensor_inputs", type_hint=list[str], default=["latents"]),
            InputParam("height", type_hint=int, default=480),
            InputParam("negative_prompt", type_hint=str | list[str]),
            InputParam("negative_prompt_embeds", type_hint=torch.Tensor | None),
            InputParam("num_frames", type_hint=int, default=81),
            InputParam("prompt", type_hint=str | list[str]),
            InputParam("prompt_embeds", type_hint=torch.Tensor | None),
            InputParam("width", type_hint=int, default=832),
        ]

    @property
    def intermediate_outputs(self) -> list[OutputParam]:
        return [
            OutputParam("callback_on_step_end_tensor_inputs"),
            OutputParam("height"),
            OutputParam("num_frames"),
            OutputParam("width"),
        ]

    @torch.no_grad()
    def __call__(
        self, components: WanT2vBlocksModularPipeline, state: PipelineState
    ) -> tuple[WanT2vBlocksModularPipeline, PipelineState]:
        block_state = self.get_block_state(state)
        if isinstance(block_state.callback_on_step_end, (PipelineCallback, MultiPipelineCallbacks)):
            block_state.callback_on_step_end_tensor_inputs = block_state.callback_on_step_end.tensor_inputs

        # 1. Check inputs. Raise error if not correct
        check_inputs(
            components,
            block_state.prompt,
            block_state.negative_prompt,
            block_state.height,
            block_state.width,
            block_state.prompt_embeds,
            block_state.negative_prompt_embeds,
            block_state.callback_on_step_end_tensor_inputs,
            None,
        )

        if block_state.num_frames % components.vae_scale_factor_temporal != 1:
            logger.warning(
                f"`num_frames - 1` has to be divisible by {components.vae_scale_factor_temporal}. Rounding to the nearest number."
            )
            block_state.num_frames = (
                block_state.num_frames // components.vae_scale_factor_temporal * components.vae_scale_factor_temporal
                + 1
            )
        block_state.num_frames = max(block_state.num_frames, 1)

        patch_size = (
            components.transformer.config.patch_size
            if components.transformer is not None
            else components.transformer_2.config.patch_size
        )
        h_multiple_of = components.vae_scale_factor_spatial * patch_size[1]
        w_multiple_of = components.vae_scale_factor_spatial * patch_size[2]
        calc_height = block_state.height // h_multiple_of * h_multiple_of
        calc_width = block_state.width // w_multiple_of * w_multiple_of
        if block_state.height != calc_height or block_state.width != calc_width:
            logger.warning(
                f"`height` and `width` must be multiples of ({h_multiple_of}, {w_multiple_of}) for proper patchification. "
                f"Adjusting ({block_state.height}, {block_state.width}) -> ({calc_height}, {calc_width})."
            )
            block_state.height, block_state.width = calc_height, calc_width

        components._guidance_scale = components.guider.guidance_scale
        components._guidance_scale_2 = components.guider_2.guidance_scale
        components._attention_kwargs = block_state.attention_kwargs
        components._current_timestep = None
        components._interrupt = False
        self.set_block_state(state, block_state)
        return components, state
