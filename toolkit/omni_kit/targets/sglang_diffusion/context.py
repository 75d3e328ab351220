"""Variables for the templates of a pipeline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omni_kit.targets.sglang_diffusion.built_in import Own
from omni_kit.targets.sglang_diffusion.facts import PipelineFacts
from omni_kit.targets.sglang_diffusion.fields import Field, fields_of
from omni_kit.targets.sglang_diffusion.reuse import SAME_SCHEDULERS, reused
from omni_kit.targets.sglang_diffusion.unserved_arguments import unserved
from omni_kit.toys.configs.axes import IS_AXES
from omni_kit.upstream.diffusers.affine import Affine
from omni_kit.upstream.diffusers.calling import FRAMES, call_arguments, listed_images, size_of, values_as
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.decoding import decodes_in_tiles_alone
from omni_kit.upstream.diffusers.signatures import arguments
from omni_kit.upstream.diffusers.traits import attention_kernels

_DISPATCH = "dispatch_attention_fn"
_TAKEN = {"guidance": "embedded_guidance"}  # DenoisingStage hands over a `guidance` of its own
# As many as pictures; some pipelines refuse a list, even of one.
_GENERATOR = (
    "batch.generator[0] if isinstance(batch.generator, list) and len(batch.generator) == 1 else batch.generator"
)
ASKED = {
    "prompt": "batch.prompt", "negative_prompt": "batch.negative_prompt", "height": "batch.height",
    "width": "batch.width", **dict.fromkeys(FRAMES, "batch.num_frames"),
    "num_inference_steps": "batch.num_inference_steps",
    "guidance_scale": "batch.guidance_scale", "true_cfg_scale": "batch.true_cfg_scale",
    "num_images_per_prompt": "batch.num_outputs_per_prompt", "num_videos_per_prompt": "batch.num_outputs_per_prompt",
    "max_sequence_length": "batch.max_sequence_length", "latents": "batch.latents", "generator": _GENERATOR,
    "use_resolution_binning": "False", "output_type": '"latent"',
}  # fmt: skip
"""Arguments of a pipeline's call -> what SGLang's request has for them."""
SIZED = {"height": '_chosen(batch, "height")', "width": '_chosen(batch, "width")', "max_area": "_area(batch)"}
"""Sizes of a pipeline's call -> SGLang's values, which images may set, too."""
_DEFAULTS = {
    "num_inference_steps": "int", "guidance_scale": "float", "true_cfg_scale": "float | None",
    **dict.fromkeys(FRAMES, "int"),
}  # fmt: skip
_HEADS = ("num_attention_heads", "n_heads", "num_heads")
_WIDTHS = ("hidden_size", "dim", "inner_dim", "model_dim")
_GRID = 5


@dataclass(frozen=True)
class Condition:
    """An argument of the denoiser: as upstream calls it, and as SGLang passes it over."""

    name: str
    key: str


@dataclass(frozen=True)
class Text:
    """A name with the Python text of its value."""

    name: str
    text: str


def pipeline_context(facts: PipelineFacts, own: Own, reuses: bool) -> dict[str, Any]:
    """Return the names that all templates may use, but for where the parts are.

    Args:
        own: what SGLang has itself.
        reuses: SGLang's own autoencoder and scheduler are taken where it has the same.
    """
    return {
        **_names(facts), **_denoiser(facts), **_guided(facts), **_decoded(facts, own, reuses),
        "asked": [Text(name, ASKED[name]) for name in call_arguments(facts.pipeline) if name in ASKED],
        "images": facts.images, "images_needed": facts.images_needed, "listed_images": listed_images(facts.pipeline),
        "tasks": tasks_of(facts), "task": tasks_of(facts)[0],
        "unserved": list(unserved(facts.pipeline, {*ASKED, *facts.images, *(SIZED if facts.images else ())})),
        "own_denoiser": own.models.get(facts.model.class_name, "").rpartition(":")[0],
        "defaults": _defaults(facts), **_sizes(facts),
    }  # fmt: skip


def tasks_of(facts: PipelineFacts) -> list[str]:
    """Return SGLang's tasks that a pipeline does, the default one first."""
    if facts.images_needed:
        return ["I2V" if facts.video else "I2I"]
    if not facts.images:
        return ["T2V" if facts.video else "T2I"]
    return ["T2V", "I2V"] if facts.video else ["TI2I"]


def _names(facts: PipelineFacts) -> dict[str, Any]:
    parts = {one.name for one in facts.pipeline.components} | facts.pipeline.optional
    given = arguments(facts.pipeline.cls)
    declared = [name for name, one in given.items() if not one.required and name not in parts]
    kept = {one.name for one in facts.components}
    return {
        "pipeline": facts.class_name,
        "upstream": facts.model.class_name,
        "library_version": facts.model.library.version,
        "denoiser": facts.pipeline.denoiser.name,
        "components": [one.name for one in sorted(facts.components, key=lambda one: one.name)],
        "upstream_components": [one.name for one in facts.upstream_components],
        "namesake": facts.namesake,
        "encoders_package": facts.encoders_package,
        "guiders": any(one.role == "guider" for one in facts.upstream_components),
        "settings": declared,
        "absent": [name for name, one in given.items() if one.required and name not in kept],
        "video": facts.video,
        "values_as": values_as(facts.pipeline),
        "text_encoders": facts.text_encoders,
    }


def _denoiser(facts: PipelineFacts) -> dict[str, Any]:
    denoising, model, kernels = facts.denoising, facts.model, attention_kernels(facts.model)
    values = {name: model.value(name)[0] for name in model.arguments}
    extra = {name: value for name, value in model.given.items() if name not in values}
    listed = _is_listed(facts, denoising.latents)
    unit = denoising.unit
    conditions = [name for name in denoising.conditions if name != facts.embeds and name != "kwargs"]
    text = "hidden_states"
    if listed:
        axis = facts.denoiser_inputs.unsqueezed
        text = f"list({text}{f'.unsqueeze({axis})' if axis else ''})"
    return {
        "fields": fields_of(values), "extra_fields": fields_of(extra),
        "hidden_size": _width(values), "heads": _heads(values),
        "channels": _first(values, ("in_channels", "in_visual_dim")),
        "conditions": [Condition(name, _TAKEN.get(name, name)) for name in conditions],
        "renamed": {name: key for name, key in _TAKEN.items() if name in conditions},
        "embedded": "guidance" in conditions,
        "embeds": facts.embeds, "listed_embeds": _is_listed(facts, facts.embeds),
        "forward": list(facts.taken), "latents": denoising.latents, "latents_text": text, "step": denoising.step,
        "listed": listed, "unsqueezed": facts.denoiser_inputs.unsqueezed, "halved": facts.denoiser_inputs.halved,
        "sign": denoising.sign, "step_text": step_text(unit) if unit is not None else "",
        "shared": bool(facts.plan_where and kernels), "plan_where": facts.plan_where,
        "step_where": denoising.where, "return_dict": "return_dict" in facts.taken,
        "kernels": bool(kernels), "torchs": _DISPATCH not in kernels,
    }  # fmt: skip


def _is_listed(facts: PipelineFacts, name: str) -> bool:
    """Return whether an argument of the denoiser is a list of tensors."""
    return name in facts.taken and facts.taken[name].annotation.lower().startswith("list")


def _guided(facts: PipelineFacts) -> dict[str, Any]:
    guidance = facts.guidance
    return {
        "formula": guidance.formula.name, "formula_text": guidance.formula.value, "formula_where": guidance.where,
        "scale": guidance.scale, "renormed": guidance.renormed, "together": guidance.together,
        "negative_first": guidance.negative_first,
    }  # fmt: skip


def _decoded(facts: PipelineFacts, own: Own, reuses: bool) -> dict[str, Any]:
    scale, decoding, vae = facts.denoising.scale, facts.decoding, facts.autoencoder
    known = reused(vae.class_name, own) if reuses else None
    autoencoder = find_class(facts.model.library, vae.class_name)
    return {
        "vae": vae.name, "vae_class": vae.class_name, "vae_reused": known is not None,
        "tiles_alone": autoencoder is not None and decodes_in_tiles_alone(autoencoder),
        "vae_statement": _who_decodes(vae.class_name, own, known is not None),
        "vae_fields": fields_of(facts.vae_values()) if known is None else [],
        "known_vae": known, "same_schedulers": SAME_SCHEDULERS if reuses else (),
        "convention": scale.convention, "convention_where": scale.where, "scaled": scale.scaled,
        "mean_of": _of_autoencoder(scale.mean, vae.name), "deviation_of": _of_autoencoder(scale.deviation, vae.name),
        "axes": decoding.axes or _GRID, "unpack": decoding.unpack, "first_frame": decoding.first_frame,
        "unpacking": [Text(name, _local(text)) for name, text in decoding.arguments.items()],
        "decode_where": decoding.where, "base": _base(facts), "unpack_static": decoding.static,
        "loop_todo": facts.loop_odd, "end_todo": facts.end_odd, "decoding_asked": facts.decoding_asked,
        "changing": facts.denoiser_inputs.changing,
    }  # fmt: skip


def _who_decodes(class_name: str, own: Own, reused_here: bool) -> str:
    """Return which library's autoencoder decodes, and why."""
    place = own.models.get(class_name)
    if place is None:
        return f"SGLang {own.version} has no {class_name}, so diffusers' class decodes"
    if reused_here:
        return f"SGLang's class decodes ({place})"
    return f"diffusers' class decodes; SGLang's in {place} was not measured to be equal, or is not called"


def _of_autoencoder(name: str, autoencoder: str) -> str:
    """Return a read of the autoencoder as get_decode_scale_and_shift can do it: from config or module."""
    inner = name.removeprefix(f"{autoencoder}.")
    return f"arch.{inner.removeprefix('config.')}" if inner.startswith("config.") else f"vae.{inner}"


def _base(facts: PipelineFacts) -> str:
    if facts.video:
        return "PipelineConfig"
    return "ImagePipelineConfig" if facts.decoding.unpack else "SpatialImagePipelineConfig"


def _local(text: str) -> str:
    """Return an expression of `__call__` in terms of its recorded variables."""
    return text.replace("self.", "pipeline.") if text.startswith("self.") else f'local["{text}"]'


def _defaults(facts: PipelineFacts) -> list[Field]:
    given = call_arguments(facts.pipeline)
    found = [
        Field("num_frames" if name in FRAMES else name, kind, repr(given[name].default))
        for name, kind in _DEFAULTS.items()
        if name in given and isinstance(given[name].default, int | float)
    ]
    against = given["negative_prompt"].default if "negative_prompt" in given else None
    text = against if isinstance(against, str) else None
    return [*found, Field("negative_prompt", "str | None", repr(text))]


def _sizes(facts: PipelineFacts) -> dict[str, Any]:
    values = facts.vae_given
    widths, downs = values.get("block_out_channels"), values.get("temperal_downsample")
    known: dict[str, Any] = {}
    if isinstance(widths, (list, tuple)):
        known["vae_scale_factor"] = 2 ** (len(widths) - 1)
    elif isinstance(downs, (list, tuple)):
        known["vae_scale_factor"] = 2 ** len(downs)
    sample = facts.model.value("sample_size")[0]
    known |= (
        {"transformer.config.sample_size": sample, "default_sample_size": sample} if isinstance(sample, int) else {}
    )
    return {name: size_of(facts.pipeline, name, known)[0] for name in ("height", "width")}


def _first(values: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the first of these names that is a whole number, as text; 0 if there is none."""
    return next((f"self.{name}" for name in names if isinstance(values.get(name), int)), "0")


def _heads(values: Mapping[str, Any]) -> str:
    """Return the number of heads as text: an argument, or the width by that of a head, which positions share by
    axes.
    """
    heads, width = _first(values, _HEADS), _first(values, _WIDTHS)
    axes = [name for name, value in values.items() if IS_AXES.search(name) and isinstance(value, (list, tuple))]
    return f"{width} // sum(self.{axes[0]})" if heads == "0" != width and axes else heads


def _width(values: Mapping[str, Any]) -> str:
    heads = _first(values, _HEADS)
    if heads != "0" and isinstance(values.get("attention_head_dim"), int):
        return f"{heads} * self.attention_head_dim"
    return _first(values, _WIDTHS)


def step_text(unit: Affine) -> str:
    """Return a unit of steps as an expression of `step`."""
    factor = "step" if unit.scale == 1 else f"{unit.scale!r} * step"
    if abs(unit.scale) and unit.scale != 1 and round(1 / abs(unit.scale), 6).is_integer():
        factor = f"{'-' if unit.scale < 0 else ''}step / {round(1 / abs(unit.scale))}"
    return f"{unit.offset!r} + {factor}".replace("+ -", "- ") if unit.offset else factor
