"""The prompt inputs of WanPipeline's denoiser: the outputs of its own encode_prompt."""

import inspect
from contextlib import ExitStack
from typing import Any

import torch
from diffusers import AutoencoderKLWan, WanPipeline, WanTransformer3DModel
from sglang.multimodal_gen.runtime.distributed import get_local_torch_device
from sglang.multimodal_gen.runtime.managers.memory_managers.component_manager import ComponentUse
from sglang.multimodal_gen.runtime.pipelines_core.schedule_batch import Req
from sglang.multimodal_gen.runtime.pipelines_core.stages import TextEncodingStage
from sglang.multimodal_gen.runtime.server_args import ServerArgs

_ENCODED = (
    "prompt_embeds",
    "negative_prompt_embeds",
)  # what encode_prompt answers, in order
# Argument of the denoiser -> what it is for the prompt, and against it.
_CONDITIONS = {
    "encoder_hidden_states": ("prompt_embeds", "negative_prompt_embeds"),
}


class Shell(WanPipeline):
    """WanPipeline with its encoders alone, on a device of SGLang's choice."""

    _own_device: torch.device

    @property
    def _execution_device(self):
        return self._own_device


def shell(folder: str, parts: dict[str, Any], scheduler, device: torch.device) -> Shell:
    """The pipeline without the weights of its denoiser and its autoencoder."""
    config = WanPipeline.load_config(folder)
    with torch.device("meta"):
        built = {
            "transformer": WanTransformer3DModel.from_config(
                WanTransformer3DModel.load_config(folder, subfolder="transformer")
            ),
            "vae": AutoencoderKLWan.from_config(AutoencoderKLWan.load_config(folder, subfolder="vae")),
        }
    options = {
        name: config[name]
        for name in (
            "boundary_ratio",
            "expand_timesteps",
        )
        if name in config
    }
    absent = {name: None for name in ()}
    pipeline = WanPipeline(**{**absent, **parts, **built, **options, "scheduler": scheduler})
    pipeline.__class__ = Shell
    pipeline._own_device = device
    return pipeline


class WanT2vPromptEncodingStage(TextEncodingStage):
    """Encodes as WanPipeline does: only its code joins its encoders' outputs."""

    # Equal prompts of one request group are encoded once.
    deduplicated_output_fields = (*TextEncodingStage.deduplicated_output_fields, "do_classifier_free_guidance")
    deduplicated_extra_output_keys = ("wan_t2v",)

    def build_dedup_fingerprint(self, batch: Req, server_args: ServerArgs):
        """The request's fields on which this stage's output depends."""
        known = super().build_dedup_fingerprint(batch, server_args)
        return (*known, batch.guidance_scale, batch.true_cfg_scale, batch.num_outputs_per_prompt)

    def __init__(self, model_path: str, parts: dict[str, Any], scheduler):
        encoders = [part for part in parts.values() if isinstance(part, torch.nn.Module)]
        super().__init__(encoders, [part for part in parts.values() if part not in encoders])
        self.parts = parts
        self.pipeline = shell(model_path, parts, scheduler, get_local_torch_device())

    @property
    def _encoders(self) -> list[str]:
        return [name for name, part in self.parts.items() if isinstance(part, torch.nn.Module)]

    def component_uses(self, server_args: ServerArgs, stage_name: str | None = None) -> list[ComponentUse]:
        """The encoders, which SGLang keeps on the device while they are in use."""
        stage_name = self._component_stage_name(stage_name)
        return [ComponentUse(stage_name=stage_name, component_name=name) for name in self._encoders]

    @torch.no_grad()
    def forward(self, batch: Req, server_args: ServerArgs) -> Req:
        """Set the denoiser's prompt inputs, and whether classifier-free guidance is on."""
        batch.do_classifier_free_guidance = bool(batch.guidance_scale > 1.0)
        with ExitStack() as stack:
            for name in self._encoders:
                stack.enter_context(self.use_declared_component(component_name=name, module=self.parts[name]))
            answer = self.pipeline.encode_prompt(**self._asked(batch))
        encoded = dict(zip(_ENCODED, answer if isinstance(answer, tuple) else (answer,), strict=True))
        positive = {name: encoded[pair[0]] for name, pair in _CONDITIONS.items()}
        negative = {name: encoded[pair[1] or pair[0]] for name, pair in _CONDITIONS.items()}
        guided = batch.do_classifier_free_guidance
        batch.prompt_embeds = _listed(positive.pop("encoder_hidden_states"))
        batch.negative_prompt_embeds = _listed(negative.pop("encoder_hidden_states")) if guided else None
        batch.extra["wan_t2v"] = {"positive": _given(positive), "negative": _given(negative) if guided else {}}
        return batch

    def _asked(self, batch: Req) -> dict[str, Any]:
        """The arguments of encode_prompt."""
        return {
            "prompt": batch.prompt,
            "negative_prompt": batch.negative_prompt,
            "do_classifier_free_guidance": batch.do_classifier_free_guidance,
            "num_videos_per_prompt": _or_default(batch.num_outputs_per_prompt, "num_videos_per_prompt"),
            "max_sequence_length": _or_default(batch.max_sequence_length, "max_sequence_length"),
            "device": self.pipeline._execution_device,
        }


def _listed(embeds) -> list[torch.Tensor]:
    """DenoisingStage expects a list."""
    return list(embeds) if isinstance(embeds, (list, tuple)) else [embeds]


def _given(conditions: dict[str, Any]) -> dict[str, Any]:
    """The entries that are not None."""
    return {name: value for name, value in conditions.items() if value is not None}


def _or_default(value, name: str):
    """The request's value, or the default of WanPipeline."""
    return inspect.signature(WanPipeline.__call__).parameters[name].default if value is None else value
