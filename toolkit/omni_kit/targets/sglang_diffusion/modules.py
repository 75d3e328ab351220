"""The modular way: what of a pipeline SGLang's standard stages do, in the words of its PipelineConfig."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.source import dotted
from omni_kit.targets.sglang_diffusion.context import ASKED, Text
from omni_kit.targets.sglang_diffusion.facts import PipelineFacts
from omni_kit.upstream.diffusers.calling import call_arguments
from omni_kit.upstream.diffusers.composing import ENCODE, NOISE, Composition, Reader
from omni_kit.upstream.diffusers.renamed_expressions import Wording
from omni_kit.upstream.diffusers.signatures import arguments
from omni_kit.upstream.places import read_json

_WORDS = {
    "height": "batch.height", "width": "batch.width", "num_frames": "batch.num_frames",
    "num_inference_steps": "num_inference_steps", "guidance_scale": "batch.guidance_scale",
    "self.guidance_scale": "batch.guidance_scale", "self._guidance_scale": "batch.guidance_scale",
    "true_cfg_scale": "batch.true_cfg_scale", "negative_prompt": "batch.negative_prompt",
}  # fmt: skip
_OF_STAGES = {
    "device": "self.pipeline._execution_device",
    "do_classifier_free_guidance": "batch.do_classifier_free_guidance",
}
_SHIFTS = "use_dynamic_shifting"


def compose(facts: PipelineFacts) -> Composition:
    """Return the pipeline, taken apart; `against` says what does not fit SGLang's stages."""
    found = Reader(facts.denoising, facts.guidance, _wording(facts), _dynamic(facts)).read()
    odd = [one for one in _asked(facts, found) if isinstance(one, str)]
    if facts.embeds not in found.conditions and found.encoded:
        odd.append(
            f"passes its denoiser {facts.embeds or 'nothing'}, which {ENCODE} does not make ({facts.denoising.where})"
        )
    odd += [one for one in _unpacking(facts) if isinstance(one, str)]
    return replace(found, against=[*found.against, *odd])


def modular_context(facts: PipelineFacts) -> dict[str, Any]:
    """Return the other variables of the modular variant's templates."""
    found = compose(facts)
    asked = [one for one in _asked(facts, found) if isinstance(one, Text)]
    noise = facts.pipeline.cls.method(NOISE)
    in_stage = found.guides.replace("self.", "server_args.pipeline_config.")
    return {
        "encoded": found.encoded, "paired": list(found.conditions.items()), "guides": in_stage, "encodes": asked,
        "defaulted": any("_or_default" in one.text for one in asked), "shape": found.shape, "exact": found.exact,
        "noise_where": noise[0].source.where(noise[1]) if noise is not None else "", "pack": found.pack,
        "packing": [Text(name, text) for name, text in found.packing.items()], "sigmas": found.sigmas,
        "unpacking": [one for one in _unpacking(facts) if isinstance(one, Text)],
    }  # fmt: skip


def _wording(facts: PipelineFacts) -> Wording:
    denoiser, autoencoder = facts.pipeline.denoiser.name, facts.autoencoder.name
    configs = {
        f"self.{denoiser}.config": "self.dit_config.arch_config",
        f"self.{autoencoder}.config": "self.vae_config.arch_config",
    }
    return Wording(facts.pipeline, facts.scheduler.class_name, {**_WORDS, **configs})


def _dynamic(facts: PipelineFacts) -> bool:
    """Return whether the scheduler may need a computed shift: unless the checkpoint's config does not ask for one."""
    directory = facts.subject.directory
    path = directory.parent / "scheduler" / "scheduler_config.json" if directory is not None else None
    return path is None or not path.is_file() or bool(read_json(path).get(_SHIFTS))


def _asked(facts: PipelineFacts, found: Composition) -> Iterator[Text | str]:
    """Yield the arguments of encode_prompt in a stage's words; a line for each that has none."""
    taken, called = arguments(facts.pipeline.cls, ENCODE), call_arguments(facts.pipeline)
    for name, value in found.encodes.items():
        source = (dotted(value) or "").removeprefix("self.")
        if name in _OF_STAGES:
            yield Text(name, _OF_STAGES[name])
        elif source in ASKED:
            default = called[source].default if source in called else None
            optional = default is not None and source not in ("prompt", "negative_prompt")
            yield Text(name, f'_or_default({ASKED[source]}, "{source}")' if optional else ASKED[source])
        elif source in called and called[source].default not in (None, False):
            yield Text(name, f'_or_default(None, "{source}")')
        elif name in taken and taken[name].required:
            if source not in called:
                yield f"encodes prompts with {name}, {ast.unparse(value)} ({facts.denoising.where})"
            else:
                yield Text(name, "None")


def _unpacking(facts: PipelineFacts) -> Iterator[Text | str]:
    """Yield the arguments of the method that unpacks latents in the words of a config; a line for each that has
    none.
    """
    found = facts.pipeline.cls.method("__call__")
    if found is None:
        return
    for name, text in facts.decoding.arguments.items():
        try:
            value = ast.parse(text, mode="eval").body
            yield Text(name, _wording(facts).tell(value, found[1], found[1].end_lineno or 0))
        except Unsupported as what:
            yield f"unpacks its latents by {what} ({facts.decoding.where})"
