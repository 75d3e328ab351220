from typing import Any, Callable

import torch
from diffusers.configuration_utils import FrozenDict
from diffusers.guiders import ClassifierFreeGuidance
from diffusers.modular_pipelines.modular_pipeline import (
    BlockState,
    LoopSequentialPipelineBlocks,
    ModularPipelineBlocks,
    PipelineState,
)
from diffusers.modular_pipelines.modular_pipeline_utils import ComponentSpec, InputParam, OutputParam
from diffusers.schedulers import FlowMatchEulerDiscreteScheduler

from ..transformer_lumen import LumenTransformer2DModel
from .modular_pipeline import LumenModularPipeline


class LumenLoopBeforeDenoiser(ModularPipelineBlocks):
    model_name = "lumen"

    @property
    def description(self) -> str:
        return "Prepares the denoiser's inputs of one step."

    @property
    def expected_components(self) -> list[ComponentSpec]:
        return [
            ComponentSpec("scheduler", FlowMatchEulerDiscreteScheduler),
        ]

    @property
    def inputs(self) -> list[InputParam]:
        return [
            InputParam("latents", type_hint=torch.Tensor | None),
        ]

    @torch.no_grad()
    def __call__(
        self, components: LumenModularPipeline, block_state: BlockState, i, t
    ) -> tuple[LumenModularPipeline, BlockState]:
        block_state.timestep = (
            (t / components.scheduler.config.num_train_timesteps)
            .expand(block_state.latents.shape[0])
            .to(block_state.latents.dtype)
        )
        return components, block_state


class LumenLoopDenoiser(ModularPipelineBlocks):
    model_name = "lumen"

    @property
    def description(self) -> str:
        return "Calls the denoiser and applies guidance."

    @property
    def expected_components(self) -> list[ComponentSpec]:
        return [
            ComponentSpec("transformer", LumenTransformer2DModel),
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
            InputParam("latents", type_hint=torch.Tensor | None),
            InputParam("negative_prompt_embeds", type_hint=torch.Tensor | None),
            InputParam("prompt_embeds", type_hint=torch.Tensor | None),
            InputParam("timesteps"),
        ]

    @torch.no_grad()
    def __call__(
        self, components: LumenModularPipeline, block_state: BlockState, i, t
    ) -> tuple[LumenModularPipeline, BlockState]:
        if components.do_classifier_free_guidance:
            components.guider.enable()
        else:
            components.guider.disable()
        components.guider.set_state(step=i, num_inference_steps=len(block_state.timesteps), timestep=t)
        guider_state = components.guider.prepare_inputs(
            {"encoder_hidden_states": (block_state.prompt_embeds, block_state.negative_prompt_embeds)}
        )
        for guider_state_batch in guider_state:
            components.guider.prepare_models(components.transformer)
            cond_kwargs = {name: getattr(guider_state_batch, name) for name in ("encoder_hidden_states",)}
            guider_state_batch.noise_pred = components.transformer(
                hidden_states=block_state.latents, timestep=block_state.timestep, return_dict=False, **cond_kwargs
            )[0]
            components.guider.cleanup_models(components.transformer)
        block_state.noise_pred = components.guider(guider_state)[0]
        return components, block_state


class LumenLoopAfterDenoiser(ModularPipelineBlocks):
    model_name = "lumen"

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
            InputParam("callback_on_step_end", type_hint=Callable[[Any, int, int, dict], dict] | None),
            InputParam("callback_on_step_end_tensor_inputs", type_hint=list[str], default=["latents"]),
            InputParam("latents", type_hint=torch.Tensor | None),
            InputParam("prompt_embeds", type_hint=torch.Tensor | None),
        ]

    @torch.no_grad()
    def __call__(
        self, components: LumenModularPipeline, block_state: BlockState, i, t
    ) -> tuple[LumenModularPipeline, BlockState]:
        block_state.latents = components.scheduler.step(
            block_state.noise_pred, t, block_state.latents, return_dict=False
        )[0]

        if block_state.callback_on_step_end is not None:
            known = {"latents": block_state.latents, "prompt_embeds": block_state.prompt_embeds}
            given = {name: known[name] for name in block_state.callback_on_step_end_tensor_inputs}
            changed = block_state.callback_on_step_end(components, i, t, given)
            block_state.latents = changed.pop("latents", block_state.latents)
            block_state.prompt_embeds = changed.pop("prompt_embeds", block_state.prompt_embeds)
        return components, block_state


class LumenDenoiseStep(LoopSequentialPipelineBlocks):
    model_name = "lumen"
    block_classes = [
        LumenLoopBeforeDenoiser,
        LumenLoopDenoiser,
        LumenLoopAfterDenoiser,
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
    def loop_inputs(self) -> list[InputParam]:
        return [
            InputParam("timesteps"),
        ]

    @property
    def loop_intermediate_outputs(self) -> list[OutputParam]:
        return [
            OutputParam("latents"),
        ]

    @torch.no_grad()
    def __call__(
        self, components: LumenModularPipeline, state: PipelineState
    ) -> tuple[LumenModularPipeline, PipelineState]:
        block_state = self.get_block_state(state)
        with self.progress_bar(total=len(block_state.timesteps)) as progress_bar:
            for i, t in enumerate(block_state.timesteps):
                if components.interrupt:
                    continue
                components, block_state = self.loop_step(components, block_state, i=i, t=t)
                progress_bar.update()
        self.set_block_state(state, block_state)
        return components, state
