"""The rule about noise, target and timestep of a training step: VEO630."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.veomni.examples_diffusion import CONDITION, CONDITIONS
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_checkers.veomni.facts.diffusion.mixtures import LEVEL, Level, Mixture, is_level
from omni_checkers.veomni.facts.diffusion.noising import Step, on_every_path, steps
from omni_checkers.veomni.facts.diffusion.pipelines import divides_timestep
from omni_checkers.veomni.facts.diffusion.sides import Method
from omni_kit.upstream.kinds import Kind

_NEAR = 1e-9
_TARGETS = ("training_target", "target")


class NoiseFitsTarget(Rule):
    """Match the noisy input, its target and its timestep.

    With a flow-matching scheduler the input is (1 - sigma) * latents + sigma * noise, the target is noise - latents,
    and the timestep has the scale that diffusers' pipelines use for this transformer. The rule evaluates both methods
    of the condition model with symbolic latents and noise.

    Why: the loss falls in any case. With the wrong sign, or with latents and noise exchanged, the trained model turns
    images into noise. A timestep 1000 times too large is one that the model has never seen.

    Fine when: the wrapper negates the model's prediction; the rule does not check the sign if forward contains a minus.
    """

    id = "VEO630"
    name = "noise-fits-target"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-21",)
    failure_modes = ("sigma-schedule",)
    example_of = "wan_t2v"
    BAD = (
        {CONDITION: CONDITIONS.replace("noise - clean", "clean - noise")},
        {CONDITION: CONDITIONS.replace("scale_noise(clean, timestep, noise)", "scale_noise(noise, timestep, clean)")},
        {CONDITION: CONDITIONS.replace('"].append(timestep)', '"].append(timestep / 1000)')},
    )
    GOOD = ({CONDITION: CONDITIONS},)

    def check(self, diffusion: Diffusion) -> Findings:
        side = diffusion.condition
        process = diffusion.method(side.model, "process_condition") if side is not None else None
        get = diffusion.method(side.model, "get_condition") if side is not None else None
        if process is None or not any("FlowMatch" in file.text for file in diffusion.files.values()):
            raise NotApplicable("no condition model with a flow-matching scheduler can be read")
        found = (step for step in steps(diffusion, get, process) if isinstance(_input(step), Mixture))
        wrong = on_every_path(_wrong(diffusion, step) for step in found)
        if wrong is None:
            raise NotApplicable("the condition model's computation on latents cannot be followed")
        for message in sorted(wrong):
            yield Finding(message, process.path, process.node.lineno)


def _input(step: Step) -> object:
    return step.returned.get("hidden_states")


def _wrong(diffusion: Diffusion, step: Step) -> Iterator[str]:
    mixed = _input(step)
    target = next((step.returned[name] for name in _TARGETS if name in step.returned), None)
    if isinstance(mixed, Mixture):
        yield from _mixed(mixed)
    if isinstance(target, Mixture) and not _unclear(target) and not _negated(diffusion):
        yield from _target(target)
    upstream = diffusion.upstream
    if upstream is not None and diffusion.library is not None:
        wanted = divides_timestep(diffusion.library, upstream.node.name)
        given = step.returned.get("timestep")
        divided = isinstance(given, Level) and abs(given.value - LEVEL / 1000) < _NEAR
        if wanted is True and is_level(given) and not isinstance(given, Level):
            yield f"the timestep is not divided by 1000, as the pipelines of {upstream.node.name} do"
        elif wanted is False and divided:
            yield f"the timestep is divided by 1000, which the pipelines of {upstream.node.name} do not"


def _mixed(mixed: Mixture) -> Iterator[str]:
    if mixed.noise == 0:
        yield "the input contains no noise: the model is trained on clean latents"
    elif mixed.clean == 0 and not _unclear(mixed):
        yield "the input is only noise: the model never sees the latents"
    elif abs(mixed.noise - (1 - LEVEL)) < _NEAR and abs(mixed.clean - LEVEL) < _NEAR:
        yield "latents and noise are exchanged: the noise has the weight 1 - sigma"


def _target(target: Mixture) -> Iterator[str]:
    if (target.clean, target.noise) == (1, -1):
        yield "the target is latents - noise, the opposite of what flow matching predicts"
    elif (target.clean, target.noise) == (0, 1):
        yield "the target is the noise, where flow matching predicts noise - latents"
    elif (target.clean, target.noise) == (1, 0):
        yield "the target is the latents, where flow matching predicts noise - latents"
    elif target.clean and target.noise and (target.clean, target.noise) != (-1, 1):
        yield f"the target is {target.noise:g} * noise + {target.clean:g} * latents, not noise - latents"


def _unclear(mixture: Mixture) -> bool:
    """Return whether something was added that may hold latents or noise itself."""
    return any("mixture(" in text.partition("device=")[0] and "item of" in text for _, text in mixture.steps)


def _negated(diffusion: Diffusion) -> bool:
    """Return whether the wrapper changes the sign of something in its forward."""
    side = diffusion.transformer
    forward: Method | None = diffusion.method(side.model, "forward") if side is not None else None
    nodes = walked(forward.node) if forward is not None else []
    return any(
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant)
        for node in nodes
    )
