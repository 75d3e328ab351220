"""Everything that FluxPipeline does before its first step: prompts, noise, steps and conditions."""

from contextlib import ExitStack
from typing import Any

import torch
from flux_t2i.recording import Recording, Shell, record
from sglang.multimodal_gen.runtime.distributed import get_local_torch_device
from sglang.multimodal_gen.runtime.managers.memory_managers.component_manager import ComponentUse
from sglang.multimodal_gen.runtime.pipelines_core.schedule_batch import Req
from sglang.multimodal_gen.runtime.pipelines_core.stages.base import PipelineStage
from sglang.multimodal_gen.runtime.server_args import ServerArgs
from sglang.multimodal_gen.runtime.utils.precision_types import PRECISION_TO_TYPE


class FluxT2iBeforeDenoisingStage(PipelineStage):
    """Runs FluxPipeline's own code up to its denoiser, and hands what it finds to DenoisingStage."""

    def __init__(self, model_path: str, parts: dict[str, Any], scheduler):
        super().__init__()
        self.parts = parts
        dtype = PRECISION_TO_TYPE[self.server_args.pipeline_config.dit_precision]
        self.shell = Shell(model_path, parts, scheduler, get_local_torch_device(), dtype)

    @property
    def _encoders(self) -> list[str]:
        return [name for name, part in self.parts.items() if isinstance(part, torch.nn.Module)]

    def component_uses(self, server_args: ServerArgs, stage_name: str | None = None) -> list[ComponentUse]:
        """The encoders, which SGLang brings to the device for as long as they are used."""
        stage_name = self._component_stage_name(stage_name)
        return [ComponentUse(stage_name=stage_name, component_name=name) for name in self._encoders]

    @torch.no_grad()
    def forward(self, batch: Req, server_args: ServerArgs) -> Req:
        """Fills in what DenoisingStage reads."""
        with ExitStack() as stack:
            for name in self._encoders:
                stack.enter_context(self.use_declared_component(component_name=name, module=self.parts[name]))
            recording = record(self.shell, self._asked(batch))
        positive, negative = dict(recording.positive), dict(recording.negative or {})
        batch.prompt_embeds = _listed(positive.pop("encoder_hidden_states"))
        batch.do_classifier_free_guidance = recording.negative is not None
        batch.negative_prompt_embeds = _listed(negative.pop("encoder_hidden_states")) if recording.negative else None
        batch.latents = recording.latents
        batch.raw_latent_shape = recording.latents.shape
        batch.scheduler = recording.scheduler
        batch.timesteps = recording.scheduler.timesteps
        batch.sigmas = [float(sigma) for sigma in getattr(recording.scheduler, "sigmas", ())]
        batch.num_inference_steps = len(batch.timesteps) // recording.scheduler.order
        batch.extra["flux_t2i"] = {
            "positive": _renamed(positive),
            "negative": _renamed(negative),
            "unpack": self._unpacking(recording),
        }
        return batch

    def _asked(self, batch: Req) -> dict[str, Any]:
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
            "generator": batch.generator,
            "latents": batch.latents,
            "output_type": "latent",
            "max_sequence_length": batch.max_sequence_length,
        }
        return {name: value for name, value in asked.items() if value is not None}

    def _unpacking(self, recording: Recording) -> dict[str, Any]:
        """What turns tokens into a grid again, as `__call__` knows it."""
        local = recording.local
        pipeline = local["self"]
        return {
            "height": local["height"],
            "width": local["width"],
            "vae_scale_factor": pipeline.vae_scale_factor,
        }


def _listed(embeds) -> list[torch.Tensor]:
    """DenoisingStage wants a list."""
    return list(embeds) if isinstance(embeds, (list, tuple)) else [embeds]


def _renamed(conditions: dict[str, Any]) -> dict[str, Any]:
    """Conditions by the names of FluxT2iDiT.forward."""
    names = {"guidance": "embedded_guidance"}
    return {names.get(name, name): value for name, value in conditions.items()}
