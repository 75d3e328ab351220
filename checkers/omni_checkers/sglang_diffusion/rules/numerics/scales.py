"""The rule about the scale and shift of latents: SGD302."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.sglang_diffusion.examples import CONFIG, QWEN, changed
from omni_checkers.sglang_diffusion.facts.degrees import Degree, degree, pair
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_kit.errors import BadInput
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import assigned, constant, returns
from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.denoising import Denoising, LatentScale
from omni_kit.upstream.diffusers.models import ComponentModel

_METHOD = "get_decode_scale_and_shift"
_MEANS = ("mean", "shift")
_DEVIATIONS = ("std", "var", "deviation")


class ScaleIsTheInverse(Rule):
    """Return from get_decode_scale_and_shift the inverse of the normalisation used in training.

    SGLang decodes `latents / scale + shift`. The scale is `scaling_factor`, or one divided by the standard deviation.
    The shift is `shift_factor` or the mean, each with its own sign. diffusers' pipeline shows which of them the
    autoencoder has. The rule follows variables, helpers and the autoencoder's config.

    Why: nothing fails. A deviation instead of its inverse, or scale and shift exchanged, produces grey, overexposed or
    noisy images.

    Fine when: `preprocess_decoding` or your own decoding stage scales the latents; then return 1.0 and None.
    """

    id = "SGD302"
    name = "scale-is-the-inverse"
    target = "sglang-diffusion"
    obligations = ("SGL-28", "SGL-45")
    failure_modes = ("vae-scale-shift",)
    BAD = (
        changed(CONFIG, ("scale = 1.0 / torch.tensor(arch.latents_std)", "scale = torch.tensor(arch.latents_std)")),
        changed(CONFIG, ("return scale, mean", "return mean, scale")),
        changed(CONFIG, ("return scale, mean", "return arch.scaling_factor, None")),
    )
    GOOD = ({CONFIG: QWEN[CONFIG]},)

    def check(self, serving: Serving, config: ClassRef) -> Findings:
        method = config.method(_METHOD)
        if method is None:
            raise NotApplicable("get_decode_scale_and_shift cannot be read")
        home, function = method
        convention = _upstreams(serving) if not _scales_elsewhere(serving, config) else None
        for value in returns(function) if serving.is_own(home) else ():
            found = pair(value, home.source, function)
            if found is not None:
                yield from _judged(*found, value, home.source, convention)
        if serving.vae_config is not None:
            yield from _autoencoder(serving, serving.vae_config)


def _judged(
    scale: ast.expr, shift: ast.expr, source: SourceFile, function: ast.FunctionDef,
    value: ast.expr, place: SourceFile, convention: LatentScale | None,
) -> Iterator[Finding]:  # fmt: skip
    by, added = degree(scale, source, function), degree(shift, source, function)
    wrong = list(_wrong_scale(by or {})) + list(_wrong_shift(added or {}))
    yield from (at(place, value, message) for message in wrong[:1])
    if wrong or convention is None or by is None or added is None:
        return
    nothing = (constant(shift) is None and isinstance(shift, ast.Constant)) or not added
    if convention.convention == "mean and deviation" and not any(_is(name, _DEVIATIONS) for name in by):
        message = f"diffusers scales latents by mean and deviation ({convention.where}), but this does not"
        yield at(place, value, message)
    elif convention.convention == "shift and scale" and nothing:
        yield at(place, value, f"diffusers adds the autoencoder's shift_factor ({convention.where}), but this does not")


def _wrong_scale(by: Degree) -> Iterator[str]:
    for name, power in by.items():
        if _is(name, _DEVIATIONS) and power > 0:
            yield f"the scale is {name} itself: SGLang divides by it, so it has to be 1 / {name}"
        elif "scaling_factor" in name and power < 0:
            yield f"the scale is 1 / {name}: SGLang divides by it, so it has to be {name} itself"
        elif _is(name, _MEANS):
            yield f"the scale is {name}, which SGLang adds: return scale, then shift"
    if "-" in by:
        yield "the scale is negative"


def _wrong_shift(added: Degree) -> Iterator[str]:
    means = [name for name in added if _is(name, _MEANS)]
    if "-" in added and means:
        yield f"the shift is -{means[0]}: SGLang adds it, so it has to be {means[0]} itself"
    elif not means:
        for name in added:
            if _is(name, _DEVIATIONS) or "scaling_factor" in name:
                yield f"the shift is {name}, which SGLang divides by: return scale, then shift"


def _is(name: str, words: tuple[str, ...]) -> bool:
    return any(word in name for word in words)


def _autoencoder(serving: Serving, config: ClassRef) -> Iterator[Finding]:
    """Yield wrong values of mean and deviation in the autoencoder's architecture, under the names that SGLang reads."""
    arch = serving.factory(config, "arch_config")
    home = arch.method("__post_init__") if arch is not None else None
    if arch is None or home is None or not serving.is_own(home[0]):
        return
    for node in ast.walk(home[1]):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if not isinstance(target, ast.Attribute) or not isinstance(value, ast.expr):
            continue
        by = degree(value, home[0].source, home[1]) or {}
        wrong = _wrong_scale(by) if target.attr == "scaling_factor" else iter(())
        wrong = _wrong_shift(by) if target.attr == "shift_factor" else wrong
        yield from (at(home[0].source, node, message) for message in wrong)


def _scales_elsewhere(serving: Serving, config: ClassRef) -> bool:
    """Return whether a hook of the integration's own works on latents before they are decoded."""
    found = config.method("preprocess_decoding")
    return found is not None and bool(assigned(found[1], "latents"))


def _upstreams(serving: Serving) -> LatentScale | None:
    pipeline = serving.upstream
    if pipeline is None:
        return None
    try:
        cls = find_class(pipeline.library, serving.upstream_denoiser)
        model = ComponentModel(pipeline.library, cls, {}) if cls is not None else None
        return Denoising(pipeline, model).scale if model is not None else None
    except (BadInput, TypeError):
        return None
