"""The rule about defaults of requests: SGD305."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.sglang_diffusion.examples import QWEN, SAMPLING, changed
from omni_checkers.sglang_diffusion.facts.registering import Registration
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_checkers.sglang_diffusion.facts.sources import default, fields, own_classes
from omni_kit.pysource.classes import ClassRef
from omni_kit.upstream.diffusers.signatures import arguments

_COMPARED = ("num_inference_steps", "guidance_scale", "true_cfg_scale", "num_frames")
_GUIDES = ("guidance_scale", "true_cfg_scale")
_DISTILLED = ("turbo", "schnell", "lightning", "distill", "dmd", "lcm", "hyper")
_MANY = 16


class DefaultsAreThePipelines(Rule):
    """Give requests the defaults of diffusers' pipeline: steps, guidance, frames.

    The rule compares the defaults of SamplingParams, including inherited ones, with those of `__call__`. A different
    guidance scale is a warning, a different number of steps or frames an information. Checkpoints whose name marks them
    as distilled should use few steps.

    Why: most users send requests without these fields. 50 steps for a 4-step model, or no guidance for a model that
    needs it, do not reproduce the images of the model card.

    Fine when: the model card differs from diffusers; then suppress the finding with that reason.
    """

    id = "SGD305"
    name = "defaults-are-the-pipelines"
    target = "sglang-diffusion"
    severity = Severity.info
    obligations = ("SGL-22",)
    failure_modes = ("sampling-defaults",)
    BAD = (
        changed(SAMPLING, ("num_inference_steps: int = 50", "num_inference_steps: int = 20")),
        changed(SAMPLING, ("true_cfg_scale: float = 4.0", "true_cfg_scale: float = 1.0")),
    )
    GOOD = ({SAMPLING: QWEN[SAMPLING]},)

    def check(self, serving: Serving) -> Findings:
        pipeline, sampling = serving.upstream, serving.sampling
        if pipeline is None or sampling is None or not serving.is_own(sampling):
            raise NotApplicable("diffusers has no class with this name, or the integration has no SamplingParams")
        taken = arguments(pipeline.cls, "__call__")
        for registration in [one for one in serving.registrations if one.cls("sampling_param_cls") is not None]:
            yield from _distilled(registration)
        if _is_distilled(serving, sampling) or _few(sampling):
            return
        for name in _COMPARED:
            found = default(sampling, name)
            wanted: Any = taken[name].default if name in taken else None
            if found is None or not _number(wanted) or not _number(found[1]) or _embedded(serving, wanted):
                continue
            if float(found[1]) != float(wanted):
                where = f"{taken[name].default} in {serving.name}.__call__ ({taken[name].where})"
                place = found[0] if serving.is_own(found[0]) else sampling
                node = fields(place).get(name, place.node)
                one = at(place.source, node, f"'{name}' is {found[1]} by default, but {where}")
                yield replace(one, severity=Severity.warning) if name in _GUIDES else one


def _few(sampling: ClassRef) -> bool:
    """Return whether a class is for a distilled checkpoint: few steps and no guidance belong together."""
    steps, guidance = default(sampling, "num_inference_steps"), default(sampling, "guidance_scale")
    if steps is None or guidance is None or not _number(steps[1]) or not _number(guidance[1]):
        return False
    return bool(steps[1] <= _MANY // 2 and guidance[1] <= 1)


def _embedded(serving: Serving, wanted: object) -> bool:
    """Return whether diffusers passes its guidance to the denoiser instead of weighting a second branch with it."""
    found = default(serving.config, "embedded_cfg_scale") if serving.config is not None else None
    return found is not None and found[1] == wanted


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _named(registration: Registration) -> bool:
    paths = registration.paths
    return bool(paths) and all(any(word in path.lower() for word in _DISTILLED) for path in paths)


def _is_distilled(serving: Serving, sampling: ClassRef) -> bool:
    mine = [
        one for one in serving.registrations if (cls := one.cls("sampling_param_cls")) and cls.node is sampling.node
    ]
    return bool(mine) and all(_named(one) for one in mine)


def _distilled(registration: Registration) -> Iterator[Finding]:
    cls, config = registration.cls("sampling_param_cls"), registration.cls("pipeline_config_cls")
    if cls is None or not _named(registration):
        return
    if config is not None and any("denoising_steps" in name for one in own_classes(config) for name in fields(one)):
        return  # its config lists the steps themselves
    steps = default(cls, "num_inference_steps")
    if steps is not None and isinstance(steps[1], int) and steps[1] > _MANY:
        node: ast.AST = registration.given["sampling_param_cls"]
        found = at(
            registration.source,
            node,
            f"{registration.paths[0]} is distilled, but {cls.node.name} uses {steps[1]} steps",
        )
        yield Finding(found.message, found.path, found.line, found.column, severity=Severity.warning)
