from typing import Any, Callable

import torch
from diffusers.callbacks import MultiPipelineCallbacks, PipelineCallback
from diffusers.configuration_utils import FrozenDict
from diffusers.guiders import ClassifierFreeGuidance
from diffusers.models import WanTransformer3DModel
from diffusers.modular_pipelines.modular_pipeline import (
    BlockState,
    LoopSequentialPipelineBlocks,
    ModularPipelineBlocks,
    PipelineState,
)
from diffusers.modular_pipelines.modular_pipeline_utils import ComponentSpec, ConfigSpec, InputParam, OutputParam
from diffusers.schedulers import FlowMatchEulerDiscreteScheduler
from diffusers.utils import is_torch_xla_available

from .modular_pipeline import WanT2vBlocksModularPipeline

if is_torch_xla_available():
    import torch_xla.core.xla_model as xm

    XLA_AVAILABLE = True
else:
    XLA_AVAILABLE = False


class WanT2vBlocksLoopBeforeDenoiser(ModularPipelineBlocks):
    model_name = "wan_t2v_blocks"

    @property
    def description(self) -> str:
        return "Prepares the denoiser's inputs of one step."

    @property
    def expected_components(self) -> list[ComponentSpec]:
        return [
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
            ConfigSpec("expand_timesteps", default=False),
        ]

    @property
    def inputs(self) -> list[InputParam]:
        return [
            InputParam("boundary_timestep"),
            InputParam("latents", type_hint=torch.Tensor | None),
            InputParam("mask"),
            InputParam("transformer_dtype"),
        ]

    @torch.no_grad()
    def __call__(
        self, components: WanT2vBlocksModularPipeline, block_state: BlockState, i, t
    ) -> tuple[WanT2vBlocksModularPipeline, BlockState]:
        components._current_timestep = t

        if block_state.boundary_timestep is None or t >= block_state.boundary_timestep:
            # wan2.1 or high-noise stage in wan2.2
            block_state.current_model = components.transformer
            block_state.current_guider = components.guider
        else:
            # low-noise stage in wan2.2
            block_state.current_model = components.transformer_2
            block_state.current_guider = components.guider_2

        block_state.latent_model_input = block_state.latents.to(block_state.transformer_dtype)
        if components.config.expand_timesteps:
            # seq_len: num_latent_frames * latent_height//2 * latent_width//2
            temp_ts = (block_state.mask[0][0][:, ::2, ::2] * t).flatten()
            # batch_size, seq_len
            block_state.timestep = temp_ts.unsqueeze(0).expand(block_state.latents.shape[0], -1)
        else:
            block_state.timestep = t.expand(block_state.latents.shape[0])
        return components, block_state


class WanT2vBlocksLoopDenoiser(ModularPipelineBlocks):
    model_name = "wan_t2v_blocks"

    @property
    def description(self) -> str:
        return "Calls the denoiser and applies guidance."

    @property
    def inputs(self) -> list[InputParam]:
        return [
            InputParam("attention_kwargs", type_hint=dict[str, Any] | None),
            InputParam("negative_prompt_embeds", type_hint=torch.Tensor | None),
            InputParam("prompt_embeds", type_hint=torch.Tensor | None),
            InputParam("timesteps"),
        ]

    @torch.no_grad()
    def __call__(
        self, components: WanT2vBlocksModularPipeline, block_state: BlockState, i, t
    ) -> tuple[WanT2vBlocksModularPipeline, BlockState]:
        if components.do_classifier_free_guidance:
            block_state.current_guider.enable()
        else:
            block_state.current_guider.disable()
        block_state.current_guider.set_state(step=i, num_inference_steps=len(block_state.timesteps), timestep=t)
        guider_state = block_state.current_guider.prepare_inputs(
            {"encoder_hidden_states": (block_state.prompt_embeds, block_state.negative_prompt_embeds)}
        )
        for guider_state_batch in guider_state:
            block_state.current_guider.prepare_models(block_state.current_model)
            cond_kwargs = {name: getattr(guider_state_batch, name) for name in ("encoder_hidden_states",)}
            with block_state.current_model.cache_context(
                "cond" if block_state.current_guider.is_conditional else "uncond"
            ):
                guider_state_batch.noise_pred = block_state.current_model(
                    hidden_states=block_state.latent_model_input,
                    timestep=block_state.timestep,
                    attention_kwargs=block_state.attention_kwargs,
                    return_dict=False,
                    **cond_kwargs,
                )[0]
            block_state.current_guider.cleanup_models(block_state.current_model)
        block_state.noise_pred = block_state.current_guider(guider_state)[0]
        return components, block_state


class WanT2vBlocksLoopAfterDenoiser(ModularPipelineBlocks):
    model_name = "wan_t2v_blocks"

    @property
    def description(self) -> str:
        return "Takes one scheduler step."

    @property
    def expected_components(self) -> list[ComponentSpec]:
        return [
            ComponentSpec("scheduler", FlowMatchEulerDiscreteScheduler),
        ]

    @property
    def inputs(self) -> list[InputParam]:
        return [
            InputParam(
                "callback_on_step_end",
                type_hint=Callable[[int, int], None] | PipelineCallback | MultiPipelineCallbacks | None,
            ),
            InputParam("callback_on_step_end_tensor_inputs", type_hint=list[str], default=["latents"]),
            InputParam("latents", type_hint=torch.Tensor | None),
            InputParam("negative_prompt_embeds", type_hint=torch.Tensor | None),
            InputParam("prompt_embeds", type_hint=torch.Tensor | None),
        ]

    @torch.no_grad()
    def __call__(
        self, components: WanT2vBlocksModularPipeline, block_state: BlockState, i, t
    ) -> tuple[WanT2vBlocksModularPipeline, BlockState]:
        # compute the previous noisy sample x_t -> x_t-1
        block_state.latents = components.scheduler.step(
            block_state.noise_pred, t, block_state.latents, return_dict=False
        )[0]

        if block_state.callback_on_step_end is not None:
            callback_kwargs = {}
            for k in block_state.callback_on_step_end_tensor_inputs:
                callback_kwargs[k] = block_state[k]
            callback_outputs = block_state.callback_on_step_end(components, i, t, callback_kwargs)

            block_state.latents = callback_outputs.pop("latents", block_state.latents)
            block_state.prompt_embeds = callback_outputs.pop("prompt_embeds", block_state.prompt_embeds)
            block_state.negative_prompt_embeds = callback_outputs.pop(
                "negative_prompt_embeds", block_state.negative_prompt_embeds
            )
        return components, block_state


class WanT2vBlocksDenoiseStep(LoopSequentialPipelineBlocks):
    model_name = "wan_t2v_blocks"
    block_classes = [
        WanT2vBlocksLoopBeforeDenoiser,
        WanT2vBlocksLoopDenoiser,
        WanT2vBlocksLoopAfterDenoiser,
    ]
    block_names = [
        "before_denoiser",
        "denoiser",
        "after_denoiser",
    ]

    @property
    def description(self) -> str:
        return "Denoises the latents step by step."

    @property
    def loop_expected_components(self) -> list[ComponentSpec]:
        return [
            ComponentSpec("scheduler", FlowMatchEulerDiscreteScheduler),
        ]

    @property
    def loop_inputs(self) -> list[InputParam]:
        return [
            InputParam("num_inference_steps", type_hint=int, default=50),
            InputParam("num_warmup_steps"),
            InputParam("timesteps"),
        ]

    @property
    def loop_intermediate_outputs(self) -> list[OutputParam]:
        return [
            OutputParam("latents"),
        ]

    @torch.no_grad()
    def __call__(
        self, components: WanT2vBlocksModularPipeline, state: PipelineState
    ) -> tuple[WanT2vBlocksModularPipeline, PipelineState]:
        block_state = self.get_block_state(state)
        with self.progress_bar(total=block_state.num_inference_steps) as progress_bar:
            for i, t in enumerate(block_state.timesteps):
                if components.interrupt:
                    continue
                components, block_state = self.loop_step(components, block_state, i=i, t=t)

                # call the callback, if provided
                if i == len(block_state.timesteps) - 1 or (
                    (i + 1) > block_state.num_warmup_steps and (i + 1) % components.scheduler.order == 0
                ):
                    progress_bar.update()

                if XLA_AVAILABLE:
                    xm.mark_step()
        self.set_block_state(state, block_state)
        return components, state
