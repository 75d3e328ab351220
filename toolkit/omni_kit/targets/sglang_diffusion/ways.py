"""The ways in which SGLang serves a pipeline, and what of a pipeline speaks against each."""

from collections.abc import Iterator
from enum import StrEnum

from omni_kit.errors import Refusal
from omni_kit.targets.sglang_diffusion.facts import PipelineFacts
from omni_kit.targets.sglang_diffusion.modules import compose
from omni_kit.targets.sglang_diffusion.reuse import SAME_SCHEDULERS
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.guidance import Formula


class Way(StrEnum):
    """How much of a pipeline SGLang's own stages do."""

    hybrid = "hybrid"
    """Upstream's own code runs up to the denoiser; SGLang denoises and decodes."""
    modular = "modular"
    """SGLang's stages prepare noise and steps, too; upstream's code encodes prompts."""
    native = "native"
    """One stage of its own denoises and decodes."""


DOES = {
    Way.hybrid: "its own code runs up to its denoiser; SGLang denoises and decodes",
    Way.modular: "SGLang prepares noise and steps, denoises and decodes; its own code encodes prompts",
    Way.native: "a stage of its own denoises and decodes",
}

_ASKED_OF_SCHEDULERS = ("set_begin_index", "scale_model_input")  # by SGLang's DenoisingStage


def against_stages(facts: PipelineFacts) -> list[str]:
    """Why SGLang's DenoisingStage and DecodingStage cannot do the pipeline's work, each in one line with its place."""
    return [*facts.loop_odd, *facts.end_odd, *_unread(facts)]


def _unread(facts: PipelineFacts) -> Iterator[str]:
    denoising, decoding = facts.denoising, facts.decoding
    scheduler = facts.scheduler
    stepping = find_class(facts.model.library, scheduler.class_name)
    own = scheduler.class_name in SAME_SCHEDULERS  # then SGLang's class steps
    if stepping is not None and stepping.method("step") is not None and not own:
        lacking = (name for name in _ASKED_OF_SCHEDULERS if stepping.method(name) is None)
        yield from (f"steps by {scheduler.class_name}, without {name} ({scheduler.evidence})" for name in lacking)
    if not facts.embeds:
        yield f"hands its denoiser a prompt in a way that could not be read ({denoising.where})"
    if denoising.step and denoising.unit is None:
        yield f"tells its denoiser a step in a way that could not be read ({denoising.where})"
    yield from (f"computes {name} anew for each step ({denoising.where})" for name in facts.handing.changing)
    if facts.guidance.formula is Formula.unread:
        yield f"makes one of two answers in a way that could not be read ({facts.guidance.where})"
    if denoising.scale.convention == "batch-norm statistics":
        yield f"scales latents by statistics of its autoencoder ({denoising.scale.where})"
    if decoding.unpack and not decoding.static:
        yield f"unpacks its latents by {decoding.unpack}, which needs the pipeline ({decoding.where})"
    for asked in facts.decoding_asked:
        yield f"asks its autoencoder with {asked}, too ({decoding.where})"


def choose_way(facts: PipelineFacts, asked: str) -> Way:
    """The way that was asked for, else the first that fits: hybrid, and native where SGLang's stages do too little.

    Raises:
        Refusal: what was asked for does not fit; why, in one line.
    """
    reasons = against_stages(facts)
    if asked == Way.modular and (odd := [*reasons, *compose(facts).against]):
        raise Refusal(f"SGLang's standard stages do not fit: {facts.class_name} {odd[0]}", "leave --kind out")
    if asked == Way.hybrid and not facts.embeds:
        raise Refusal(f"{facts.class_name} {reasons[-1]}", f"--kind {Way.native} runs its own loop")
    if not asked:
        return Way.native if reasons else Way.hybrid
    return Way(asked)
