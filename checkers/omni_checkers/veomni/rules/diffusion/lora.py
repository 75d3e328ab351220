"""The rule about weights that adapters wrap: VEO634."""

import ast
import re
from collections.abc import Iterator

from omni_checkers.engine.files import File, functions, walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples_diffusion import ATTENTION, MODEL, MODELING, PROCESSOR
from omni_checkers.veomni.facts.diffusion import Diffusion
from omni_kit.upstream.kinds import Kind

_WRAPPED = re.compile(
    r"to_(q|k|v|qkv|out|add_out)|(add_)?[qkv]_proj|\w*_proj|proj_\w+|proj|linear\w*|fc\d*|qkv|w[123]|to_gate\w*"
)
_BUILDING = re.compile(r"_?init\w*|__init__|reset_parameters|\w*load\w*|\w*state_dict\w*|\w*convert\w*|\w*fuse\w*")
_TURNS = "        attend = ALL"


class WeightsAreNotReadDirectly(Rule):
    """Do not read `.weight` of a projection that an adapter may replace in code that a forward runs.

    Read the dtype from tensors, or from the module's first parameter.

    Why: with LoRA, `to_q` is VeOmni's LoraLinear, which has a `base_layer` and no `weight`: the first step raises
    AttributeError. A manual product with the weight bypasses the adapter, which learns nothing.

    Fine when: nobody trains adapters on this module; then suppress the finding.
    """

    id = "VEO634"
    name = "weights-of-projections-are-not-read"
    severity = Severity.warning
    target = "veomni"
    kinds = frozenset({Kind.dit})
    failure_modes = ("lora-fused-experts", "lora-keys")
    example_of = "wan_t2v"
    BAD = (
        {
            MODEL: MODELING,
            ATTENTION: PROCESSOR.replace(_TURNS, "        query = query.to(attn.to_q.weight.dtype)\n" + _TURNS),
        },
        {
            MODEL: MODELING,
            ATTENTION: PROCESSOR.replace("attn.to_v(context)", "context @ attn.to_v.weight.t()"),
        },
    )
    GOOD = (
        {MODEL: MODELING, ATTENTION: PROCESSOR.replace(_TURNS, "        query = query.to(value.dtype)\n" + _TURNS)},
    )

    def check(self, diffusion: Diffusion) -> Findings:
        side = diffusion.transformer
        folder = side.place[0].parent if side is not None else None
        files = [file for path, file in diffusion.files.items() if folder is not None and path.is_relative_to(folder)]
        if not files:
            raise NotApplicable("the transformer's package cannot be found")
        for file, node in functions(files):
            if _BUILDING.fullmatch(node.name) and not _for_kernel(file, node):
                continue
            for name, line in sorted(set(_read(node)), key=lambda item: item[1]):
                if "base_layer" not in ast.unparse(node):
                    yield Finding(f"{name}.weight is read, but with LoRA {name} has no weight", file.path, line)


def _read(node: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    """(projection, line) of each weight that is read."""
    for item in walked(node):
        if isinstance(item, ast.Attribute) and item.attr == "weight" and isinstance(item.ctx, ast.Load):
            module = item.value.value if isinstance(item.value, ast.Subscript) else item.value
            name = module.attr if isinstance(module, ast.Attribute) else getattr(module, "id", "")
            if name and _WRAPPED.fullmatch(name):
                yield ast.unparse(item.value), item.lineno


def _for_kernel(file: File, node: ast.FunctionDef) -> bool:
    """Return whether a constructor is that of an object that a forward makes, and no module."""
    for cls in file.nodes(ast.ClassDef):
        if node in cls.body and not cls.bases:
            return any(
                isinstance(call, ast.Call) and getattr(call.func, "id", "") == cls.name
                for _, other in functions([file])
                if other.name in {"__call__", "forward"} or other.name.endswith("_forward")
                for call in walked(other)
            )
    return False
