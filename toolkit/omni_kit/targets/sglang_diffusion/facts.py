"""Everything that is read of a pipeline before a scaffold of it is made."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from omni_kit.errors import BadInput, Refusal
from omni_kit.pysource.library import find_library
from omni_kit.pysource.source import dotted, parse_file
from omni_kit.upstream.diffusers.call_parts import Divided, divided
from omni_kit.upstream.diffusers.calling import FRAMES, call_arguments, images_of
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.decoding import Decoding, decoding_of
from omni_kit.upstream.diffusers.defaults import Defaults, media_needed
from omni_kit.upstream.diffusers.denoiser_inputs import DenoiserInputs, denoiser_inputs_of
from omni_kit.upstream.diffusers.denoising import Denoising
from omni_kit.upstream.diffusers.guidance import Guidance, guidance_of
from omni_kit.upstream.diffusers.latent_decoding import unusual_ends
from omni_kit.upstream.diffusers.looping import oddities
from omni_kit.upstream.diffusers.models import ComponentModel
from omni_kit.upstream.diffusers.pipelines import Pipeline
from omni_kit.upstream.diffusers.raising import always_raised, packages_built_with
from omni_kit.upstream.diffusers.signatures import Argument, arguments
from omni_kit.upstream.places import read_json
from omni_kit.upstream.profile import Component
from omni_kit.upstream.subject import Subject

_PLAN = "_cp_plan"
_EMBEDS, _READS = "encoder_hidden_states", "text_encoder"


def _number(name: str) -> int:
    """Return a component's number among text encoders in SGLang's count: 1, 2 for text_encoder_2; 0 for another."""
    rest = name.removeprefix(_READS)
    return int(rest.removeprefix("_")) if rest.removeprefix("_").isdigit() else int(not rest)


@dataclass(frozen=True)
class PipelineFacts:
    """Everything that a scaffold is derived from."""

    subject: Subject
    pipeline: Pipeline
    model: ComponentModel

    @cached_property
    def denoising(self) -> Denoising:
        """Pipeline's call of its denoiser."""
        return Denoising(self.pipeline, self.model)

    @cached_property
    def guidance(self) -> Guidance:
        """Formula that combines the denoiser's two outputs."""
        return guidance_of(self.pipeline)

    @cached_property
    def decoding(self) -> Decoding:
        """Processing of latents after the last step."""
        return decoding_of(self.pipeline, self.autoencoder.name)

    @cached_property
    def denoiser_inputs(self) -> DenoiserInputs:
        """Processing of latents before they are passed to the denoiser."""
        return denoiser_inputs_of(self.denoising)

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
            raise Refusal(f"{self.class_name} has no autoencoder: SGLang's decoding stage requires one")
        return found[0]

    @cached_property
    def scheduler(self) -> Component:
        """The component that steps.

        Raises:
            Refusal: there is none, or it is not called so.
        """
        found = [one for one in self.pipeline.components if one.name == "scheduler"]
        if not found:
            raise Refusal(f"{self.class_name} has no scheduler: SGLang's denoising stage requires one")
        return found[0]

    @cached_property
    def components(self) -> list[Component]:
        """Components to load: all in model_index.json; for a class alone, without its optional ones.

        What reads prompts and what decodes are not among the latter: SGLang takes texts, and returns pictures.
        """
        denoiser = self.pipeline.denoiser.name
        return [one for one in self.pipeline.components if self._is_loaded(one) or one.name == denoiser]

    def _is_loaded(self, component: Component) -> bool:
        used = component.role in ("tokenizer", "autoencoder") or component.name.startswith(_READS)
        return bool(self.pipeline.values) or not component.optional or used

    @property
    def upstream_components(self) -> list[Component]:
        """Components that upstream's own code calls: encoders, tokenizers and processors."""
        apart = (self.pipeline.denoiser.name, self.autoencoder.name, "scheduler")
        return [one for one in self.components if one.name not in apart]

    @cached_property
    def namesake(self) -> str:
        """The package of transformers' models that is called as the pipeline's own package; empty without one.

        diffusers writes that name as the library of its classes.
        """
        name = self.pipeline.cls.source.path.parent.name
        encoders = [one for one in self.components if one.library == "transformers"]
        return name if encoders and (find_library("transformers").root / "models" / name).is_dir() else ""

    @cached_property
    def encoders_package(self) -> str:
        """The pipeline's own package where that defines one of its encoders' classes; empty if transformers has all."""
        folder = self.pipeline.cls.source.path.parent
        init = folder / "__init__.py"
        _, tree = parse_file(init) if init.is_file() else ("", ast.Module([], []))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        return folder.name if defined & {one.class_name for one in self.components} else ""

    @cached_property
    def text_encoders(self) -> int:
        """Number of text encoders that SGLang has configs for: the highest of their numbers."""
        return max((_number(one.name) for one in self.components if one.name.startswith(_READS)), default=0)

    @cached_property
    def embeds(self) -> str:
        """The denoiser's argument for what the prompt became; empty if that cannot be determined."""
        if _EMBEDS in self.denoising.conditions:
            return _EMBEDS
        handed = ((name, ast.unparse(value)) for name, value in self.denoising.handed.items())
        return next((name for name, text in handed if "prompt_embeds" in text and "pooled" not in text), "")

    @cached_property
    def plan_where(self) -> str:
        """Place where the denoiser's class declares its sequence sharding; empty if it does not."""
        found = self.model.cls.assigned(_PLAN)
        return found[0].source.where(found[1]) if found is not None and isinstance(found[1], ast.Dict) else ""

    @cached_property
    def tells_schedulers_apart(self) -> bool:
        """Return whether its call asks of which class its scheduler is: SGLang's own classes are none of diffusers'."""
        found = self.pipeline.cls.method("__call__")
        calls = (node for node in ast.walk(found[1]) if isinstance(node, ast.Call)) if found is not None else ()
        return any(dotted(call.func) == "isinstance" and dotted(call.args[0]) == "self.scheduler" for call in calls)

    @cached_property
    def taken(self) -> Mapping[str, Argument]:
        """The arguments of the denoiser's forward."""
        return arguments(self.model.cls, "forward")

    @cached_property
    def video(self) -> bool:
        """Return whether it makes films."""
        return not set(FRAMES).isdisjoint(call_arguments(self.pipeline))

    @cached_property
    def vae_given(self) -> dict[str, Any]:
        """Values of the autoencoder's config.json; empty if only a class is known."""
        directory = self.subject.directory
        beside = directory.parent / self.autoencoder.name / "config.json" if directory is not None else None
        given = read_json(beside) if beside is not None and beside.is_file() else {}
        return {name: value for name, value in given.items() if not name.startswith("_")}

    def vae_values(self) -> dict[str, Any]:
        """Return the autoencoder's config: as its config.json says it, else by default."""
        cls = find_class(self.model.library, self.autoencoder.class_name)
        values = {name: one.default for name, one in arguments(cls).items()} if cls is not None else {}
        return {**values, **self.vae_given}

    def needed_to_decode(self, asked: str) -> bool:
        """Return whether the autoencoder needs an argument after latents: no generator, nothing that its config
        declines.
        """
        declined = self.vae_values().get(f"{asked}_conditioning") is False
        return not declined and "generator" not in asked

    @cached_property
    def loop_odd(self) -> list[str]:
        """Statements of its loop over steps other than calling, guiding and stepping."""
        return oddities(self.denoising, self.scheduler.class_name)

    @cached_property
    def end_odd(self) -> list[str]:
        """Processing of its last latents other than unpacking, scaling and decoding."""
        return unusual_ends(self.denoising, self.scheduler.class_name)

    @property
    def decoding_asked(self) -> list[str]:
        """Arguments other than latents that the autoencoder needs to decode."""
        return [text for text in self.decoding.decode_arguments if self.needed_to_decode(text)]

    @cached_property
    def images(self) -> list[str]:
        """The arguments of its call for the images of a request, in order."""
        return images_of(self.pipeline)

    @cached_property
    def images_needed(self) -> list[str]:
        """Images that a call requires."""
        return [name for name in self._media_needed if name in self.images]

    @cached_property
    def _media_needed(self) -> list[str]:
        return media_needed(Defaults(self.pipeline, self.scheduler.class_name))

    @cached_property
    def divided(self) -> Divided | Refusal:
        """Its call in parts, or why it cannot be divided."""
        try:
            return divided(self.pipeline)
        except Refusal as why:
            return why

    def refuse_what_cannot_be_served(self) -> None:
        """Raise a Refusal where the pipeline is not one of text and images, with one denoiser and an autoencoder."""
        if since := self.pipeline.retired:
            successor = next(iter(self.pipeline.cls.node.bases), None)
            hint = f"scaffold {ast.unparse(successor)}" if successor is not None else ""
            raise Refusal(f"{self.class_name} is deprecated since diffusers {since}: its constructor raises", hint)
        if raised := next(always_raised(self.pipeline), ""):
            version = self.model.library.version
            raise Refusal(f"{self.class_name} of diffusers {version} raises in every call: it {raised}")
        required = [one.name for one in call_arguments(self.pipeline).values() if one.required and one.name != "prompt"]
        if others := [name for name in (*self._media_needed, *required) if name not in self.images]:
            raise Refusal(f"{self.class_name} starts from {others[0]}: only text and images are served")
        others = [
            one.name
            for one in self.pipeline.components
            if one.role in ("denoiser", "controlnet") and one.name != self.pipeline.denoiser.name
            if self.pipeline.values or not one.optional
        ]
        if others:
            raise Refusal(f"{self.class_name} also runs {others[0]}: pipelines of one denoiser are scaffolded")
        own = [one for one in self.upstream_components if one.library != "transformers"]
        strange = [one for one in own if one.role != "guider"]
        if strange:
            raise Refusal(
                f"{self.class_name} needs {strange[0].name}, a {strange[0].class_name} of {strange[0].library}, "
                "which the scaffold has no loader for"
            )
        if "prompt" not in call_arguments(self.pipeline):
            raise Refusal(f"{self.class_name} takes no prompt: only text and images are served")
        if absent := [name for name in packages_built_with(self.pipeline) if find_spec(name) is None]:
            raise Refusal(
                f"{self.class_name}'s constructor raises without {absent[0]}, which is not installed",
                f"pip install {absent[0]}",
            )


def pipeline_facts(subject: Subject) -> PipelineFacts:
    """Collect the facts about a subject's pipeline.

    Raises:
        BadInput: it was not given as a pipeline.
    """
    if subject.pipeline is None or subject.component is None:
        raise BadInput(
            f"{subject.given} is not a pipeline, and SGLang serves whole pipelines",
            "pass a directory with model_index.json, or a class such as FluxPipeline",
        )
    return PipelineFacts(subject, subject.pipeline, subject.component)
