"""The rule about the scale of latents: VEO635."""

import re
from collections.abc import Iterator, Mapping

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.veomni.examples_diffusion import CONDITION, CONDITIONS
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_checkers.veomni.facts.diffusion.mixtures import Mixture
from omni_checkers.veomni.facts.diffusion.noising import on_every_path, steps
from omni_kit.pysource.classes import ClassRef
from omni_kit.upstream.diffusers.signatures import Argument, arguments
from omni_kit.upstream.kinds import Kind

_MEAN, _SPREAD = ("latents_mean", "shift_factor", "running_mean"), ("latents_std", "scaling_factor", "running_var")
_CONFIG = re.compile(r"config\.(\w+)")


class LatentsAreNormalised(Rule):
    """Normalise latents with the VAE's own statistics.

    Use (latents - latents_mean) / latents_std if the VAE has these, else (latents - shift_factor) * scaling_factor, in
    this order, once.

    Why: latents of another scale have another distribution. The loss still falls, but the pipeline's images are washed
    out or overexposed, because it applies the correct inverse.

    Fine when: the data set contains normalised latents; then suppress the finding.
    """

    id = "VEO635"
    name = "latents-are-normalised"
    target = "veomni"
    kinds = frozenset({Kind.dit})
    obligations = ("DIT-20", "DIT-21")
    failure_modes = ("vae-scale-shift",)
    example_of = "wan_t2v"
    BAD = (
        {CONDITION: CONDITIONS.replace("(latents - mean) / std", "(latents - mean) * std")},
        {CONDITION: CONDITIONS.replace("(latents - mean) / std", "latents / std - mean")},
        {CONDITION: CONDITIONS.replace("clean = self._normalize_latents(", "clean = (")},
    )
    GOOD = ({CONDITION: CONDITIONS},)

    def check(self, diffusion: Diffusion) -> Findings:
        side = diffusion.condition
        process = diffusion.method(side.model, "process_condition") if side is not None else None
        get = diffusion.method(side.model, "get_condition") if side is not None else None
        vae = _vae(diffusion)
        if process is None or vae is None:
            raise NotApplicable("no VAE of diffusers is imported by the condition model")
        inputs = (step.returned.get("hidden_states") for step in steps(diffusion, get, process))
        wrong = on_every_path(_wrong(one, vae) for one in inputs if isinstance(one, Mixture) and one.clean)
        if wrong is None:
            raise NotApplicable("the condition model's computation on latents cannot be followed")
        for message in sorted(wrong):
            yield Finding(message, process.path, process.node.lineno)


def _vae(diffusion: Diffusion) -> ClassRef | None:
    """Return the VAE of diffusers that the condition model imports; None if it is none, or one of several."""
    folder = diffusion.condition.place[0].parent if diffusion.condition is not None else None
    names = {
        real.rpartition(".")[2]
        for path, file in diffusion.files.items()
        if path.parent == folder
        for real in file.imports.values()
        if real.startswith("diffusers.") and real.rpartition(".")[2].startswith("Autoencoder")
    }
    return diffusion.known(names.pop()) if len(names) == 1 else None


def _wrong(mixture: Mixture, vae: ClassRef) -> Iterator[str]:
    taken = arguments(vae)
    known = [(operator, text) for operator, text in mixture.steps if _kind(text)]
    for _, text in known:
        for name in _CONFIG.findall(text):
            if name in {*_MEAN, *_SPREAD} and name not in taken:
                yield f"the config of {vae.node.name} has no '{name}'"
                return
    kinds = [_kind(text) for _, text in known]
    if not any(kinds) and len(mixture.steps) == len(known):
        if wanted := _wanted(taken):
            yield f"the latents are not normalised: {vae.node.name} has {wanted}"
        return
    means = [operator for operator, text in known if _kind(text) == "mean"]
    spreads = [(operator, text) for operator, text in known if _kind(text) == "spread"]
    if len(means) > 1 or len(spreads) > 1:
        yield "the latents are normalised more than once"
        return
    if any(operator != "sub" for operator in means):
        yield "the mean of the latents is not subtracted"
    if any(not _right(operator, text) for operator, text in spreads):
        yield "the spread is applied the wrong way: divide by latents_std, multiply by scaling_factor"
    if means and spreads and kinds.index("mean") > kinds.index("spread"):
        yield "the latents are scaled before their mean is subtracted"
    if bool(means) != bool(spreads) and _listed(taken):
        yield f"the latents are only partly normalised: {vae.node.name} has latents_mean and latents_std"


def _kind(text: str) -> str:
    plain = text.partition("device=")[0]
    if any(word in plain for word in _SPREAD):
        return "spread"
    return "mean" if any(word in plain for word in _MEAN) else ""


def _right(operator: str, text: str) -> bool:
    inverse = "1 truediv" in text or "1.0 truediv" in text or "reciprocal" in text
    by_std = "scaling_factor" not in text
    return operator == ("truediv" if by_std != inverse else "mul")


def _listed(taken: Mapping[str, Argument]) -> bool:
    return "latents_mean" in taken and taken["latents_mean"].default is not None


def _wanted(taken: Mapping[str, Argument]) -> str:
    if _listed(taken):
        return "latents_mean and latents_std"
    return "a scaling_factor" if "scaling_factor" in taken else ""
