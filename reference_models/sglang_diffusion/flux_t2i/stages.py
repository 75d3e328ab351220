"""SGLang's stages around the parts of FluxPipeline: its own code prepares and guides, DenoisingStage runs the loop."""

from contextlib import ExitStack
from typing import Any

import cache_dit
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
        batch.scheduler = steps.scheduler
        batch.timesteps = torch.as_tensor(state.timesteps)
        batch.num_inference_steps = max(1, len(batch.timesteps) // steps.scheduler.order)
        batch.latents, batch.raw_latent_shape = state.latents, state.latents.shape
        batch.prompt_embeds = batch.negative_prompt_embeds = []  # the state has them
        first = _calls(steps, state, 0, batch.timesteps[0])
        batch.extra["flux_t2i"] = (steps, state, [first])
        batch.do_classifier_free_guidance = _count(first) > 1  # caches and gates follow the calls that are made
        return batch


class FluxT2iDenoisingStage(DenoisingStage):
    """SGLang's loop over steps: FluxPipeline defines the denoiser's calls and combines their outputs."""

    def _get_prompt_embeds_validator(self, batch: Req):
        return lambda embeds: True

    _get_negative_prompt_embeds_validator = _get_prompt_embeds_validator

    def _before_denoising_loop(self, ctx, batch: Req, server_args: ServerArgs) -> None:
        """Leaves the scheduler as FluxPipeline has set it."""
        self._init_cfg_gate_state(ctx, batch, server_args)

    def _maybe_enable_cache_dit(self, num_inference_steps, batch: Req) -> None:
        """Mount cache-dit as SGLang does, and keep what FluxPipeline's two calls at a step compute apart."""
        count = _count(batch.extra["flux_t2i"][-1][0])
        if count > 2 and self._cache_dit_requested_for_batch(batch):
            raise ValueError(f"cache-dit counts two calls at a step, and FluxPipeline makes {count} of its denoiser")
        super()._maybe_enable_cache_dit(len(batch.timesteps), batch)
        if self._cache_dit_enabled:
            separate = self._cache_dit_has_separate_cfg(batch)
            config = cache_dit.DBCacheConfig().reset(enable_separate_cfg=separate)  # the rest stays SGLang's
            cache_dit.refresh_context(self.transformer, cache_config=config)

    def _run_denoising_step(self, ctx, step, batch: Req, server_args: ServerArgs) -> None:
        steps, state, first = batch.extra["flux_t2i"]
        place = (step.step_index, step.t_device)
        calls = first.pop() if first else _calls(steps, state, *place)
        branches = [_branch(number, one, _count(calls)) for number, one in enumerate(sum(calls, []))]
        gate = ctx.extra["cfg_gate_state"]  # while it is active, it expects the conditional output first
        order = sorted(range(len(branches)), key=lambda number: gate["active"] and not branches[number].is_conditional)
        predicted = self._predict_noise_with_cfg(
            current_model=step.current_model,
            latent_model_input=ctx.latents,
            timestep=step.t_device,
            batch=batch,
            timestep_index=step.step_index,
            attn_metadata=step.attn_metadata,
            target_dtype=ctx.target_dtype,
            current_guidance_scale=step.current_guidance_scale,
            cfg_policy=_apart([branches[number] for number in order]),
            cfg_gate_state=gate,
            server_args=server_args,
            guidance=ctx.guidance,
            latents=ctx.latents,
        )
        answers = [self._as_upstream(predicted[order.index(number)]) for number in range(len(order))]
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


def _apart(branches: list[CFGBranch]) -> CFGPolicy:
    """Leave outputs as they are: FluxPipeline combines them (diffusers/pipelines/flux/pipeline_flux.py:977).

    SGLang's gate accepts a CFGPolicy, and no subclass.
    """
    policy = CFGPolicy(branches, parallel_uses_serial_arithmetic=True)  # devices exchange outputs, not their sums
    policy.combine = lambda predictions, *args, **kwargs: predictions
    return policy


def _calls(steps: FluxT2iSteps, state, index: int, time) -> list[list[dict[str, Any]]]:
    """The denoiser's calls at a step, in the shares that they are made in."""
    return [_shares(asked, len(state.latents)) for asked in steps.asked(state, index, time)]


def _count(calls: list[list[dict[str, Any]]]) -> int:
    return sum(map(len, calls))


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
