"""SGLang's stages around the parts of FluxPipeline: its own code prepares and guides, DenoisingStage runs the loop."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from flux_t2i.steps import FluxT2iSteps
from sglang.multimodal_gen.runtime.distributed import get_local_torch_device
from sglang.multimodal_gen.runtime.distributed.cfg_policy import CFGBranch, CFGPolicy
from sglang.multimodal_gen.runtime.managers.memory_managers.component_manager import ComponentUse
from sglang.multimodal_gen.runtime.pipelines_core.schedule_batch import Req
from sglang.multimodal_gen.runtime.pipelines_core.stages import DenoisingStage
from sglang.multimodal_gen.runtime.pipelines_core.stages.base import PipelineStage
from sglang.multimodal_gen.runtime.server_args import ServerArgs
from torch.utils import _pytree as pytree


class FluxT2iBeforeDenoisingStage(PipelineStage):
    """Prompts, noise, steps and conditions, as FluxPipeline makes them."""

    def __init__(self, model_path: str, parts: dict[str, Any]):
        super().__init__()
        apart = ("transformer", "vae")
        models = {name: part for name, part in parts.items() if isinstance(part, torch.nn.Module)}
        self.used = {name: part for name, part in models.items() if name not in apart}
        self.steps = FluxT2iSteps.assembled(model_path, parts, get_local_torch_device())

    def component_uses(self, server_args: ServerArgs, stage_name: str | None = None) -> list[ComponentUse]:
        """The encoders, which SGLang keeps on the device while they are in use."""
        stage_name = self._component_stage_name(stage_name)
        return [ComponentUse(stage_name=stage_name, component_name=name) for name in self.used]

    @torch.no_grad()
    def forward(self, batch: Req, server_args: ServerArgs) -> Req:
        """Set the fields that DenoisingStage reads; the rest stays in the call's state."""
        steps = self.steps.for_request()
        with ExitStack() as stack:
            for name, part in self.used.items():
                stack.enter_context(self.use_declared_component(component_name=name, module=part))
            state = steps.before_steps(**_asked(batch))
        batch.extra["flux_t2i"] = (steps, state)
        batch.scheduler = steps.scheduler
        batch.timesteps = torch.as_tensor(state.timesteps)
        batch.num_inference_steps = max(1, len(batch.timesteps) // steps.scheduler.order)
        batch.latents, batch.raw_latent_shape = state.latents, state.latents.shape
        batch.prompt_embeds = batch.negative_prompt_embeds = []  # the state has them
        return batch


class FluxT2iDenoisingStage(DenoisingStage):
    """SGLang's loop over steps: FluxPipeline defines the denoiser's calls and combines their outputs."""

    def _get_prompt_embeds_validator(self, batch: Req):
        return lambda embeds: True

    _get_negative_prompt_embeds_validator = _get_prompt_embeds_validator

    def _before_denoising_loop(self, ctx, batch: Req, server_args: ServerArgs) -> None:
        """Leaves the scheduler as FluxPipeline has set it."""
        self._init_cfg_gate_state(ctx, batch, server_args)

    def _run_denoising_step(self, ctx, step, batch: Req, server_args: ServerArgs) -> None:
        steps, state = batch.extra["flux_t2i"]
        place = (step.step_index, step.t_device)
        steps.before_denoiser(state, *place)
        calls = [_shares(asked, len(state.latents)) for asked in steps.asked(state, *place)]
        branches = [branch for call in calls for branch in call]
        predicted = self._predict_noise_with_cfg(
            current_model=step.current_model,
            latent_model_input=ctx.latents,
            timestep=step.t_device,
            batch=batch,
            timestep_index=step.step_index,
            attn_metadata=step.attn_metadata,
            target_dtype=ctx.target_dtype,
            current_guidance_scale=step.current_guidance_scale,
            cfg_policy=Answers([_branch(number, one, len(branches)) for number, one in enumerate(branches)]),
            cfg_gate_state=None,
            server_args=server_args,
            guidance=ctx.guidance,
            latents=ctx.latents,
        )
        answers = [self._as_upstream(one) for one in predicted]
        steps.answered(state, *place, [_joined([answers.pop(0) for _ in call]) for call in calls])
        steps.after_denoiser(state, *place)
        ctx.latents = state.latents

    def _predict_noise(self, current_model, latent_model_input, timestep, target_dtype, guidance, asked):
        """Call the denoiser as FluxPipeline does; branches on other devices return the same form."""
        tensors, self._form = pytree.tree_flatten(current_model(**asked))
        return tuple(tensors)

    def _as_upstream(self, predicted):
        tensors = predicted if isinstance(predicted, tuple) else (predicted,)
        return pytree.tree_unflatten(list(tensors), self._form)


@dataclass
class Answers(CFGPolicy):
    """Leaves answers as they are: FluxPipeline makes one of them (diffusers/pipelines/flux/pipeline_flux.py:977)."""

    parallel_uses_serial_arithmetic: bool = True  # devices exchange outputs, not their sums

    def combine(self, predictions, batch, cfg_scale, pipeline_config, *, cfg_parallel=False):
        """All outputs, in the order of the calls."""
        return predictions


def _branch(number: int, asked: dict[str, Any], count: int) -> CFGBranch:
    """One denoiser output, computed by one of the devices that share guidance."""
    positive = count == 1 or number != 1
    return CFGBranch("conditional" if positive else "unconditional", positive, {"asked": asked})


def _shares(asked: dict[str, Any], rows: int) -> list[dict[str, Any]]:
    """The calls of the denoiser that one call of FluxPipeline comes to."""
    return [asked]


def _joined(answers: list):
    """The outputs of one call's rows, concatenated."""
    first = answers[0]
    if len(answers) == 1:
        return first
    if isinstance(first, torch.Tensor):
        return torch.cat(answers)
    if isinstance(first, list):
        return [one for answer in answers for one in answer]
    if isinstance(first, dict):
        return type(first)(**{name: _joined([one[name] for one in answers]) for name in first})
    return tuple(_joined(list(one)) for one in zip(*answers, strict=True))


def _asked(batch: Req) -> dict[str, Any]:
    """The arguments of FluxPipeline.__call__."""
    asked = {
        "prompt": batch.prompt,
        "negative_prompt": batch.negative_prompt,
        "true_cfg_scale": batch.true_cfg_scale,
        "height": batch.height,
        "width": batch.width,
        "num_inference_steps": batch.num_inference_steps,
        "guidance_scale": batch.guidance_scale,
        "num_images_per_prompt": batch.num_outputs_per_prompt,
        "generator": batch.generator[0]
        if isinstance(batch.generator, list) and len(batch.generator) == 1
        else batch.generator,
        "latents": batch.latents,
        "output_type": "pt",
        "max_sequence_length": batch.max_sequence_length,
    }
    return {name: value for name, value in asked.items() if value is not None}
