"""Signs of distillation in a checkpoint's own configs: the kind of guidance, and that few steps may suffice."""

from collections.abc import Iterator

from omni_kit.targets.protocol import Decision
from omni_kit.targets.sglang_diffusion.facts import PipelineFacts
from omni_kit.upstream.diffusers.calling import call_arguments
from omni_kit.upstream.diffusers.pipelines import INDEX

_EMBEDS, _GUIDANCE, _DISTILLED, _STEPS = "guidance_embeds", "guidance", "is_distilled", "num_inference_steps"


def distillation(facts: PipelineFacts) -> Iterator[Decision]:
    """Yield the consequences of given configs for requests; none from a class alone.

    No config says for how many steps a checkpoint was made: requests have those of diffusers, and that is said where
    something else tells that they are too many.
    """
    signs = list(_signs(facts))
    yield from signs
    steps = call_arguments(facts.pipeline).get(_STEPS)
    if steps is not None and any(sign.choice == "none" for sign in signs):
        why = "configs do not record its number of steps: see its model card, and sampling_params.py"
        yield Decision("steps", str(steps.default), why, steps.where)


def _signs(facts: PipelineFacts) -> Iterator[Decision]:
    given, takes = facts.model.given, _GUIDANCE in facts.taken
    if _EMBEDS in given and takes:
        embedded = bool(given[_EMBEDS])
        why = "guidance_scale goes to the denoiser" if embedded else "guidance_scale has no effect"
        place = f"{facts.pipeline.denoiser.name}/config.json: {_EMBEDS}"
        yield Decision("embedded guidance", "told" if embedded else "none", why, place)
    if facts.pipeline.values.get(_DISTILLED):
        yield Decision(
            "second branch",
            "none",
            "it is guidance-distilled: guidance_scale does not switch guidance",
            f"{INDEX}: {_DISTILLED}",
        )
