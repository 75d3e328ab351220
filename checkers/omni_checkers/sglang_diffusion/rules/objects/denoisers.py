"""Rules on denoisers: SGL104, SGL202."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.sglang_diffusion.facts.classes import DIT, DIT_CONFIG, Classes, Found
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.python.source import dotted

_DIT = """from sglang.multimodal_gen.runtime.models.dits.base import BaseDiT


class ServedDiT(BaseDiT):
    _fsdp_shard_conditions = []
    _compile_conditions = []
    param_names_mapping = {}

    def __init__(self, config, hf_config, quant_config=None, **kwargs):
        super().__init__(config, hf_config)

    def forward(self, hidden_states, encoder_hidden_states, timestep):
        return hidden_states


EntryClass = ServedDiT
"""
_MODULES = frozenset({"Module"})
_TAKEN = ("config", "hf_config", "quant_config")
_ASKED = ("hidden_states", "timestep", "encoder_hidden_states")


class DenoiserIsABaseDiT(Rule):
    """A denoiser is a BaseDiT, and is made of (config, hf_config, quant_config).

    Why: SGLang's loader cannot make another class. It logs an error and goes on with diffusers' own class, slower, and
    with other names for what it is asked.

    Fine when: another stage than DenoisingStage makes and calls the module.
    """

    id = "SGL104"
    name = "denoiser-is-a-base-dit"
    target = "sglang-diffusion"
    kinds = frozenset({Kind.pipeline})
    obligations = ("SGL-10",)
    BAD = (
        {
            "dit.py": _DIT.replace("(BaseDiT)", "(nn.Module)").replace(
                "from sglang", "from torch import nn\nfrom sglang"
            )
        },
        {"dit.py": _DIT.replace(", hf_config, quant_config=None, **kwargs", "")},
    )
    GOOD = ({"dit.py": _DIT},)

    def check(self, classes: Classes) -> Findings:
        """See `Rule.check`."""
        denoisers = list(classes.of(DIT))
        entered = [found for found in classes.of(_MODULES) if _entered(found)]
        if not denoisers and not (entered and list(classes.of(DIT_CONFIG))):
            raise NotApplicable("it has no denoiser of its own")
        for found in entered if not denoisers else ():
            yield Finding(f"{found.node.name} is no BaseDiT: SGLang cannot load it", found.file.path, found.node.lineno)
        yield from _not_taken(denoisers, "__init__", _TAKEN)


class DenoiserTakesWhatItIsAsked(Rule):
    """A denoiser that DenoisingStage asks has arguments of the names that it is asked with.

    Why: a TypeError at the first step.

    Fine when: a stage of the model's own asks it; the rule speaks of pipelines with the standard stage alone.
    """

    id = "SGL202"
    name = "denoiser-takes-what-it-is-asked"
    target = "sglang-diffusion"
    kinds = frozenset({Kind.pipeline})
    obligations = ("SGL-10", "SGL-27")
    BAD = ({"dit.py": _DIT.replace(", timestep)", ", t)")}, {"dit.py": _DIT.replace("hidden_states", "x")})
    GOOD = ({"dit.py": _DIT},)

    def check(self, classes: Classes, standard_denoising: str) -> Findings:
        """See `Rule.check`."""
        denoisers = list(classes.of(DIT))
        if not denoisers:
            raise NotApplicable("it has no denoiser of its own")
        yield from _not_taken(denoisers, "forward", _ASKED)


def _not_taken(denoisers: list[Found], name: str, wanted: tuple[str, ...]) -> Iterator[Finding]:
    """Findings where a method does not take what it is called with by name."""
    for found in denoisers:
        method = found.method(name)
        if method is not None and (lacking := _lacking(method, wanted)):
            message = f"{found.node.name}.{name} does not take '{lacking}', which SGLang passes by name"
            yield Finding(message, found.file.path, method.lineno)


def _entered(found: Found) -> bool:
    """Whether the file's EntryClass names it."""
    body = found.file.tree.body if found.file.tree is not None else []
    entries = (node for node in body if isinstance(node, ast.Assign) and dotted(node.targets[0]) == "EntryClass")
    return any(
        dotted(name) == found.node.name
        for node in entries
        for name in ast.walk(node.value)
        if isinstance(name, ast.Name)
    )


def _lacking(method: ast.FunctionDef, wanted: tuple[str, ...]) -> str:
    taken = {one.arg for one in (*method.args.args, *method.args.kwonlyargs)}
    return next((name for name in wanted if name not in taken), "") if method.args.kwarg is None else ""
