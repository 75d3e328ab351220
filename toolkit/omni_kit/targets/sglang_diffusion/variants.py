"""The ways in which SGLang serves a pipeline, and what of a pipeline speaks against each."""

from collections.abc import Iterator
from enum import StrEnum

from omni_kit.errors import Refusal
from omni_kit.targets.sglang_diffusion.facts import PipelineFacts
from omni_kit.targets.sglang_diffusion.modules import compose
from omni_kit.targets.sglang_diffusion.reuse import SAME_SCHEDULERS
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.guidance import Formula


class IntegrationVariant(StrEnum):
    """Share of a pipeline that SGLang's own stages run."""

    modular = "modular"
    """SGLang's stages prepare noise and steps, denoise and decode; upstream's code encodes prompts."""
    native = "native"
    """SGLang's DenoisingStage runs the loop; upstream's code prepares it and runs around each step."""
    hybrid = "hybrid"
    """Upstream's own code runs up to the denoiser; SGLang denoises and decodes."""
    whole = "whole"
    """One stage runs the whole call."""


DOES = {
    IntegrationVariant.modular: "SGLang prepares noise and steps, denoises and decodes; its own code encodes prompts",
    IntegrationVariant.native: "SGLang runs the loop over steps; its own code runs before, around and after the steps",
    IntegrationVariant.hybrid: "its own code runs up to its denoiser; SGLang denoises and decodes",
    IntegrationVariant.whole: "its own stage denoises and decodes",
}

_ASKED_OF_SCHEDULERS = ("set_begin_index", "scale_model_input")  # by SGLang's DenoisingStage


def against_stages(facts: PipelineFacts) -> list[str]:
    """Return why SGLang's stages, unchanged, cannot denoise and decode, each in one line with its place."""
    return [*facts.loop_odd, *facts.end_odd, *_unread(facts), *_undecoded(facts)]


def against_decoding(facts: PipelineFacts) -> list[str]:
    """Return why SGLang's DecodingStage cannot decode, each in one line with its place."""
    decoding = facts.decoding
    found = [*facts.end_odd, *_undecoded(facts)]
    if facts.images:
        found.append(f"may end differently when it starts from {facts.images[0]} ({decoding.where})")
    return found


def _undecoded(facts: PipelineFacts) -> Iterator[str]:
    denoising, decoding = facts.denoising, facts.decoding
    if denoising.scale.convention == "batch-norm statistics":
        yield f"scales latents by statistics of its autoencoder ({denoising.scale.where})"
    if decoding.unpack and not decoding.static:
        yield f"unpacks its latents by {decoding.unpack}, which needs the pipeline ({decoding.where})"
    for asked in facts.decoding_asked:
        yield f"calls its autoencoder with {asked}, too ({decoding.where})"


def _unread(facts: PipelineFacts) -> Iterator[str]:
    denoising, scheduler = facts.denoising, facts.scheduler
    stepping = find_class(facts.model.library, scheduler.class_name)
    own = scheduler.class_name in SAME_SCHEDULERS  # then SGLang's class steps
    if stepping is not None and stepping.method("step") is not None and not own:
        lacking = (name for name in _ASKED_OF_SCHEDULERS if stepping.method(name) is None)
        yield from (f"steps by {scheduler.class_name}, without {name} ({scheduler.evidence})" for name in lacking)
    if facts.images_needed:
        yield f"starts from {facts.images_needed[0]} ({denoising.where})"
    if not facts.embeds:
        yield f"passes its denoiser a prompt in a way that could not be analysed ({denoising.where})"
    if denoising.step and denoising.unit is None:
        yield f"passes its denoiser a timestep in a way that could not be analysed ({denoising.where})"
    yield from (f"recomputes {name} for each step ({denoising.where})" for name in facts.denoiser_inputs.changing)
    if facts.guidance.formula is Formula.unread:
        yield f"combines both outputs in a way that could not be analysed ({facts.guidance.where})"


def choose_way(facts: PipelineFacts, asked: str) -> IntegrationVariant:
    """Return the way that was asked for, else the first that fits.

    Raises:
        Refusal: what was asked for does not fit; why, in one line.
    """
    reasons = against_stages(facts)
    odd = [*reasons, *compose(facts).against]
    if asked == IntegrationVariant.modular and odd:
        raise Refusal(f"SGLang's standard stages do not fit: {facts.class_name} {odd[0]}", "leave --kind out")
    if asked == IntegrationVariant.native and isinstance(facts.divided, Refusal):
        raise facts.divided
    lacking = tuple(f"steps by {facts.scheduler.class_name}, without {name}" for name in _ASKED_OF_SCHEDULERS)
    unfit = [one for one in reasons if one.startswith((*lacking, "passes its denoiser a prompt", "starts from"))]
    if asked == IntegrationVariant.hybrid and unfit:
        what = unfit[0]
        raise Refusal(
            f"{facts.class_name} {what}", f"--kind {IntegrationVariant.native} runs its own code around each step"
        )
    if asked:
        return IntegrationVariant(asked)
    if not odd and not facts.images:
        return IntegrationVariant.modular
    if not isinstance(facts.divided, Refusal):
        return IntegrationVariant.native
    return IntegrationVariant.whole if reasons else IntegrationVariant.hybrid
