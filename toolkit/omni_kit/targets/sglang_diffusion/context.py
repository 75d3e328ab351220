"""What the templates of a pipeline are rendered with."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from omni_kit.errors import BadInput, Refusal
from omni_kit.targets.sglang_diffusion.fields import Field, fields_of
from omni_kit.targets.sglang_diffusion.reuse import SAME_SCHEDULERS, reused
from omni_kit.upstream.diffusers.affine import Affine
from omni_kit.upstream.diffusers.calling import call_arguments, size_of
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.decoding import Decoding, decoding_of
from omni_kit.upstream.diffusers.defaults import Defaults, media_needed
from omni_kit.upstream.diffusers.denoising import Denoising
from omni_kit.upstream.diffusers.finishing import unusual_ends
from omni_kit.upstream.diffusers.guidance import Guidance, guidance_of
from omni_kit.upstream.diffusers.handing import Handing, handing_of
from omni_kit.upstream.diffusers.looping import oddities
from omni_kit.upstream.diffusers.models import ComponentModel
from omni_kit.upstream.diffusers.pipelines import Pipeline
from omni_kit.upstream.diffusers.signatures import Argument, arguments
from omni_kit.upstream.diffusers.traits import attention_kernels
from omni_kit.upstream.places import read_json
from omni_kit.upstream.profile import Component
from omni_kit.upstream.subject import Subject

_DISPATCH = "dispatch_attention_fn"
_TAKEN = {"guidance": "embedded_guidance"}  # DenoisingStage hands over a `guidance` of its own
_EMBEDS = "encoder_hidden_states"
ASKED = {
    "prompt": "batch.prompt", "negative_prompt": "batch.negative_prompt", "height": "batch.height",
    "width": "batch.width", "num_frames": "batch.num_frames", "num_inference_steps": "batch.num_inference_steps",
    "guidance_scale": "batch.guidance_scale", "true_cfg_scale": "batch.true_cfg_scale",
    "num_images_per_prompt": "batch.num_outputs_per_prompt", "num_videos_per_prompt": "batch.num_outputs_per_prompt",
    "max_sequence_length": "batch.max_sequence_length", "latents": "batch.latents", "generator": "batch.generator",
    "use_resolution_binning": "False", "output_type": '"latent"',
}  # fmt: skip
"""Arguments of a pipeline's call -> what SGLang's request has for them."""
_DEFAULTS = {
    "num_inference_steps": "int", "guidance_scale": "float", "true_cfg_scale": "float | None", "num_frames": "int",
}  # fmt: skip
_HEADS = ("num_attention_heads", "n_heads", "num_heads")
_WIDTHS = ("hidden_size", "dim", "inner_dim")
_GRID = 5
_READS = "text_encoder"


@dataclass(frozen=True)
class Condition:
    """An argument of the denoiser: as upstream calls it, and as SGLang hands it over."""

    name: str
    key: str


@dataclass(frozen=True)
class Text:
    """A name with the Python text of its value."""

    name: str
    text: str


@dataclass(frozen=True)
class PipelineFacts:
    """Everything that a scaffold is derived from."""

    subject: Subject
    pipeline: Pipeline
    model: ComponentModel

    @cached_property
    def denoising(self) -> Denoising:
        """How the pipeline asks its denoiser."""
        return Denoising(self.pipeline, self.model)

    @cached_property
    def guidance(self) -> Guidance:
        """What the pipeline makes of two answers."""
        return guidance_of(self.pipeline)

    @cached_property
    def decoding(self) -> Decoding:
        """What happens after the last step."""
        return decoding_of(self.pipeline, self.autoencoder.name)

    @cached_property
    def handing(self) -> Handing:
        """What happens to latents before they are handed over."""
        return handing_of(self.denoising)

    @cached_property
    def class_name(self) -> str:
        """The pipeline's class."""
        return self.pipeline.cls.node.name

    @cached_property
    def autoencoder(self) -> Component:
        """The component that decodes.

        Raises:
            Refusal: there is none.
        """
        found = [one for one in self.pipeline.components if one.role == "autoencoder"]
        if not found:
            raise Refusal(f"{self.class_name} has no autoencoder: SGLang's decoding stage has nothing to call")
        return found[0]

    @cached_property
    def scheduler(self) -> Component:
        """The component that steps.

        Raises:
            Refusal: there is none, or it is not called so.
        """
        found = [one for one in self.pipeline.components if one.name == "scheduler"]
        if not found:
            raise Refusal(f"{self.class_name} has no scheduler: SGLang's denoising stage has nothing to step with")
        return found[0]

    @cached_property
    def components(self) -> list[Component]:
        """Those that are loaded: all that model_index.json names; of a class alone, without what it can do without.

        What reads prompts is not among the latter: where it is optional, ready embeddings can take its place.
        """
        denoiser = self.pipeline.denoiser.name
        return [one for one in self.pipeline.components if self._is_loaded(one) or one.name == denoiser]

    def _is_loaded(self, component: Component) -> bool:
        reads = component.role == "tokenizer" or component.name.startswith(_READS)
        return bool(self.pipeline.values) or not component.optional or reads

    @property
    def upstream_components(self) -> list[Component]:
        """Those that upstream's own code calls: encoders, tokenizers and processors."""
        apart = (self.pipeline.denoiser.name, self.autoencoder.name, "scheduler")
        return [one for one in self.components if one.name not in apart]

    @cached_property
    def embeds(self) -> str:
        """The denoiser's argument for what the prompt became; empty where that cannot be told."""
        if _EMBEDS in self.denoising.conditions:
            return _EMBEDS
        handed = ((name, ast.unparse(value)) for name, value in self.denoising.handed.items())
        return next((name for name, text in handed if "prompt_embeds" in text and "pooled" not in text), "")

    @cached_property
    def taken(self) -> Mapping[str, Argument]:
        """The arguments of the denoiser's forward."""
        return arguments(self.model.cls, "forward")

    @cached_property
    def video(self) -> bool:
        """Whether it makes films."""
        return "num_frames" in call_arguments(self.pipeline)

    @cached_property
    def vae_given(self) -> dict[str, Any]:
        """What the autoencoder's config.json says; empty where only a class is known."""
        directory = self.subject.directory
        beside = directory.parent / self.autoencoder.name / "config.json" if directory is not None else None
        given = read_json(beside) if beside is not None and beside.is_file() else {}
        return {name: value for name, value in given.items() if not name.startswith("_")}

    def vae_values(self) -> dict[str, Any]:
        """The autoencoder's config: as its config.json says it, else by default."""
        cls = find_class(self.model.library, self.autoencoder.class_name)
        values = {name: one.default for name, one in arguments(cls).items()} if cls is not None else {}
        return {**values, **self.vae_given}

    def needed_to_decode(self, asked: str) -> bool:
        """Whether the autoencoder needs an argument besides latents: no generator, nothing that its config declines."""
        declined = self.vae_values().get(f"{asked}_conditioning") is False
        return not declined and "generator" not in asked

    @cached_property
    def loop_odd(self) -> list[str]:
        """What its loop over steps does besides asking, guiding and stepping."""
        return oddities(self.denoising, self.scheduler.class_name)

    @cached_property
    def end_odd(self) -> list[str]:
        """What it does with its last latents besides unpacking, scaling and decoding."""
        return unusual_ends(self.denoising, self.scheduler.class_name)

    @property
    def decoding_asked(self) -> list[str]:
        """What the autoencoder is asked with besides latents, and needs."""
        return [text for text in self.decoding.asked if self.needed_to_decode(text)]

    def refuse_what_cannot_be_served(self) -> None:
        """Raises a Refusal where the pipeline is not one of text alone, with one denoiser and an autoencoder."""
        if media := media_needed(Defaults(self.pipeline, self.scheduler.class_name)):
            raise Refusal(
                f"{self.class_name} starts from {media[0]}: only pipelines that start from text are scaffolded"
            )
        others = [
            one.name
            for one in self.pipeline.components
            if one.role in ("denoiser", "controlnet") and one.name != self.pipeline.denoiser.name
            if self.pipeline.values or not one.optional
        ]
        if others:
            raise Refusal(f"{self.class_name} also runs {others[0]}: pipelines of one denoiser are scaffolded")
        strange = [one for one in self.upstream_components if one.library != "transformers"]
        if strange:
            raise Refusal(
                f"{self.class_name} needs {strange[0].name}, a {strange[0].class_name} of {strange[0].library}, "
                "which the scaffold has no loader for"
            )
        if "prompt" not in call_arguments(self.pipeline):
            raise Refusal(f"{self.class_name} takes no prompt: only pipelines that start from text are scaffolded")


def pipeline_facts(subject: Subject) -> PipelineFacts:
    """What is known of a subject's pipeline.

    Raises:
        BadInput: it was not given as a pipeline.
    """
    if subject.pipeline is None or subject.component is None:
        raise BadInput(
            f"{subject.given} is no pipeline, and SGLang serves whole pipelines",
            "give a directory with model_index.json, or a class such as FluxPipeline",
        )
    return PipelineFacts(subject, subject.pipeline, subject.component)


def pipeline_context(facts: PipelineFacts, reuses: bool) -> dict[str, Any]:
    """The names that all templates may use, but for where the parts are.

    Args:
        reuses: SGLang's own autoencoder and scheduler are taken where it has the same.
    """
    return {
        **_names(facts), **_denoiser(facts), **_guided(facts), **_decoded(facts, reuses),
        "asked": [Text(name, ASKED[name]) for name in call_arguments(facts.pipeline) if name in ASKED],
        "defaults": _defaults(facts), **_sizes(facts),
    }  # fmt: skip


def _names(facts: PipelineFacts) -> dict[str, Any]:
    parts = {one.name for one in facts.pipeline.components}
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
        "libraries": ["transformers"],
        "settings": declared,
        "absent": [name for name, one in given.items() if one.required and name not in kept],
        "video": facts.video,
    }


def _denoiser(facts: PipelineFacts) -> dict[str, Any]:
    denoising, model = facts.denoising, facts.model
    values = {name: model.value(name)[0] for name in model.arguments}
    extra = {name: value for name, value in model.given.items() if name not in values}
    listed = _is_listed(facts, denoising.latents)
    unit = denoising.unit
    conditions = [name for name in denoising.conditions if name != facts.embeds and name != "kwargs"]
    text = "hidden_states"
    if listed:
        axis = facts.handing.unsqueezed
        text = f"list({text}{f'.unsqueeze({axis})' if axis else ''})"
    return {
        "fields": fields_of(values), "extra_fields": fields_of(extra),
        "hidden_size": _width(values), "heads": _first(values, _HEADS), "channels": _first(values, ("in_channels",)),
        "conditions": [Condition(name, _TAKEN.get(name, name)) for name in conditions],
        "renamed": {name: key for name, key in _TAKEN.items() if name in conditions},
        "embedded": "guidance" in conditions,
        "embeds": facts.embeds, "listed_embeds": _is_listed(facts, facts.embeds),
        "forward": list(facts.taken), "latents": denoising.latents, "latents_text": text, "step": denoising.step,
        "listed": listed, "unsqueezed": facts.handing.unsqueezed, "halved": facts.handing.halved,
        "sign": denoising.sign, "step_text": step_text(unit) if unit is not None else "",
        "step_where": denoising.where, "return_dict": "return_dict" in facts.taken,
        "kernels": bool(attention_kernels(model)), "torchs": _DISPATCH not in attention_kernels(model),
    }  # fmt: skip


def _is_listed(facts: PipelineFacts, name: str) -> bool:
    """Whether an argument of the denoiser is a list of tensors."""
    return name in facts.taken and facts.taken[name].annotation.lower().startswith("list")


def _guided(facts: PipelineFacts) -> dict[str, Any]:
    guidance = facts.guidance
    return {
        "formula": guidance.formula.name, "formula_text": guidance.formula.value, "formula_where": guidance.where,
        "scale": guidance.scale, "renormed": guidance.renormed, "together": guidance.together,
        "negative_first": guidance.negative_first,
    }  # fmt: skip


def _decoded(facts: PipelineFacts, reuses: bool) -> dict[str, Any]:
    scale, decoding, vae = facts.denoising.scale, facts.decoding, facts.autoencoder
    known = reused(vae.class_name) if reuses else None
    return {
        "vae": vae.name, "vae_class": vae.class_name, "vae_reused": known is not None,
        "vae_fields": fields_of(facts.vae_values()) if known is None else [],
        "known_vae": known, "same_schedulers": SAME_SCHEDULERS if reuses else (),
        "convention": scale.convention, "convention_where": scale.where, "scaled": scale.scaled,
        "mean_of": _of_autoencoder(scale.mean, vae.name), "deviation_of": _of_autoencoder(scale.deviation, vae.name),
        "axes": decoding.axes or _GRID, "unpack": decoding.unpack, "first_frame": decoding.first_frame,
        "unpacking": [Text(name, _local(text)) for name, text in decoding.arguments.items()],
        "decode_where": decoding.where, "base": _base(facts), "unpack_static": decoding.static,
        "loop_todo": facts.loop_odd, "end_todo": facts.end_odd, "decoding_asked": facts.decoding_asked,
        "changing": facts.handing.changing,
    }  # fmt: skip


def _of_autoencoder(name: str, autoencoder: str) -> str:
    """What a pipeline reads of its autoencoder, as get_decode_scale_and_shift can: from config or module."""
    inner = name.removeprefix(f"{autoencoder}.")
    return f"arch.{inner.removeprefix('config.')}" if inner.startswith("config.") else f"vae.{inner}"


def _base(facts: PipelineFacts) -> str:
    if facts.video:
        return "PipelineConfig"
    return "ImagePipelineConfig" if facts.decoding.unpack else "SpatialImagePipelineConfig"


def _local(text: str) -> str:
    """An expression of `__call__` in terms of its recorded variables."""
    return text.replace("self.", "pipeline.") if text.startswith("self.") else f'local["{text}"]'


def _defaults(facts: PipelineFacts) -> list[Field]:
    given = call_arguments(facts.pipeline)
    found = [
        Field(name, kind, repr(given[name].default))
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
    """The first of these names that is a whole number, as text; 0 where there is none."""
    return next((f"self.{name}" for name in names if isinstance(values.get(name), int)), "0")


def _width(values: Mapping[str, Any]) -> str:
    heads = _first(values, _HEADS)
    if heads != "0" and isinstance(values.get("attention_head_dim"), int):
        return f"{heads} * self.attention_head_dim"
    return _first(values, _WIDTHS)


def step_text(unit: Affine) -> str:
    """A unit of steps as an expression of `step`."""
    factor = "step" if unit.scale == 1 else f"{unit.scale!r} * step"
    if abs(unit.scale) and unit.scale != 1 and round(1 / abs(unit.scale), 6).is_integer():
        factor = f"{'-' if unit.scale < 0 else ''}step / {round(1 / abs(unit.scale))}"
    return f"{unit.offset!r} + {factor}".replace("+ -", "- ") if unit.offset else factor
