"""The rule about the precision of a denoiser with diffusers' forward: SGD306."""

import ast

from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, NotApplicable, Rule, Severity
from omni_checkers.sglang_diffusion.examples import CONFIG, DIT, changed
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_checkers.sglang_diffusion.facts.sources import default, fields, own_classes
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import dotted

_FIELD, _AUTOCAST = "enable_autocast", "autocast"
_OF_DIFFUSERS = ("class QwenDiT(BaseDiT)", "class QwenDiT(BaseDiT, QwenImageTransformer2DModel)")
_IMPORT = ("from torch import nn\n", "from diffusers import QwenImageTransformer2DModel\nfrom torch import nn\n")
_OFF = ('vae_precision: str = "bf16"', 'vae_precision: str = "bf16"\n    enable_autocast: bool = False')
_ON = (_OFF[0], _OFF[1].replace("False", "True"))


class AutocastIsOff(Rule):
    """Set `enable_autocast = False` for a denoiser that runs diffusers' forward.

    The rule applies to denoisers that inherit a forward of diffusers and whose pipeline calls no autocast.
    PipelineConfig enables autocast by default.

    Why: autocast runs norms and sums in float32 and casts linear layers on its own, where diffusers runs the whole
    denoiser in the loaded dtype. In bf16 the images differ from diffusers' without an error; in float32 nothing shows.

    Fine when: your checkpoint was trained and published for autocast; then suppress the finding with that reason.
    """

    id = "SGD306"
    name = "autocast-is-off"
    target = "sglang-diffusion"
    severity = Severity.warning
    obligations = ("SGL-23",)
    BAD = (
        {**changed(DIT, _OF_DIFFUSERS, _IMPORT), **changed(CONFIG, _ON)},
        changed(DIT, _OF_DIFFUSERS, _IMPORT),
    )
    GOOD = ({**changed(DIT, _OF_DIFFUSERS, _IMPORT), **changed(CONFIG, _OFF)},)

    def check(self, config: ClassRef, denoiser: ClassRef, serving: Serving) -> Findings:
        if not any("diffusers" in one.source.path.parts and _computes(one.node) for one in own_classes(denoiser)):
            raise NotApplicable("the denoiser does not inherit a forward of diffusers")
        if serving.upstream is not None and _casts(serving.upstream.cls.source.tree):
            raise NotApplicable("diffusers' pipeline itself uses autocast")
        found = default(config, _FIELD)
        if found is None or found[1] is not True:
            return
        inherited = not serving.is_own(found[0])
        place, node = (config, config.node) if inherited else (found[0], fields(found[0])[_FIELD])
        how = f"inherits {_FIELD} = {found[1]}" if inherited else f"sets {_FIELD} = {found[1]}"
        yield at(place.source, node, f"{config.node.name} {how}, but diffusers runs this denoiser without autocast")


def _computes(node: ast.ClassDef) -> bool:
    return any(isinstance(one, ast.FunctionDef) and one.name == "forward" for one in node.body)


def _casts(tree: ast.Module) -> bool:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any((dotted(call.func) or "").rpartition(".")[2] == _AUTOCAST for call in calls)
