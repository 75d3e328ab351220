"""Rules about generated modeling files: VEO4xx."""

import ast

from omni_checkers.engine.rule import Detector, Finding, Findings, NotApplicable, Rule
from omni_checkers.symbolic import Module, Program
from omni_checkers.veomni.examples import GENERATED, GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.generated import Generated, exported, upstream_own
from omni_checkers.veomni.facts.regenerate import Regenerated, difference
from omni_kit.patchgen.scopes import scopes_of
from omni_kit.pysource.source import dotted

_SOURCE = "# Source: transformers.models.olmoe.modeling_olmoe\n"
_DECORATOR = "use_experts_implementation"
_IMPORTED = "from torch import nn\nfrom transformers.integrations import use_experts_implementation\n"
_EXPERTS = """\


@config.replace_class("OlmoeExperts", description="without a loop: every expert works on every token")
{decorator}class PatchedOlmoeExperts(nn.Module):
    def __init__(self, config):
        super().__init__()
        experts, hidden, inner = config.num_local_experts, config.hidden_size, config.intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * inner, hidden))
        self.down_proj = nn.Parameter(torch.empty(experts, hidden, inner))
        self.act_fn = nn.SiLU()

    def forward(self, hidden_states, top_k_index, top_k_weights):
        gate, up = torch.einsum("th,eih->tei", hidden_states, self.gate_up_proj).chunk(2, dim=-1)
        outputs = torch.einsum("tei,ehi->teh", self.act_fn(gate) * up, self.down_proj)
        chosen = outputs.take_along_dim(top_k_index[..., None], dim=1)
        return (chosen * top_k_weights[..., None]).sum(dim=1)
"""
_ROTARY = """\


@config.replace_function("apply_rotary_pos_emb", description="one line for each")
def olmoe_apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin
"""


class NoExpertsDecorator(Rule):
    """Drop transformers' `@use_experts_implementation` from patched classes.

    Why: the decorator wraps `forward` and redirects it to transformers' own grouped matmul. The patched forward, with
    VeOmni's fused kernel and expert-parallel dispatch, never runs, without an error.

    Fine when: the class is unchanged from upstream; the rule then does not apply.
    """

    id = "VEO401"
    name = "no-leftover-experts-decorator"
    target = "veomni"
    obligations = ("VEO-MOE-02",)
    failure_modes = ("silent-eager-fallback",)
    BAD = (
        {
            GPU_CONFIG: patch_config(_EXPERTS.format(decorator=f"@{_DECORATOR}\n")).replace(
                "from torch import nn\n", _IMPORTED
            )
        },
        {
            GENERATED: """\
# Source: transformers.models.olmoe.modeling_olmoe
from torch import nn
from transformers.integrations import moe


@moe.use_experts_implementation(is_transposed=False)
class OlmoeExperts(nn.Module):
    pass
"""
        },
    )
    GOOD = ({GPU_CONFIG: patch_config(_EXPERTS.format(decorator=""))},)

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            if _DECORATOR not in item.file.text:
                continue
            for node in item.classes.values():
                for decorator in node.decorator_list:
                    if _means(item, decorator) and not upstream_own(item, node):
                        message = f"{node.name} keeps @{_DECORATOR}: its patched forward is bypassed"
                        yield Finding(message, item.file.path, decorator.lineno)
            for call in item.file.nodes(ast.Call):
                if _means(item, call.func) and _wraps_class(call, item):
                    yield Finding(f"{_DECORATOR} is applied by a call", item.file.path, call.lineno)


class GeneratedIsCurrent(Rule):
    """Commit the code and the diff that the patch config generates.

    The rule compares code and ignores comments, the header and layout, as `omni-kit patchgen check` does. Files of
    VeOmni's own generator may lack the top-level statements that it drops.

    Why: the next run overwrites a manual change, and a config change without a run has no effect. In both cases
    reviewers read other code than trains.

    Fine when: the file was generated from another transformers than the installed one; then check with that one.
    """

    id = "VEO402"
    name = "generated-file-is-what-its-config-makes"
    target = "veomni"
    staleness = True
    obligations = (
        "VEO-PG-37",
        "VEO-PG-35",
        "VEO-PG-01",
        "VEO-PG-02",
        "VEO-PG-03",
        "VEO-PG-04",
        "VEO-PG-07",
        "VEO-PG-12",
        "VEO-PG-33",
        "VEO-PG-36",
    )
    failure_modes = (
        "upstream-drift-body",
        "override-target-vanished",
    )
    detectors = (
        Detector(1, "no-longer-generates", "The config generates with the installed transformers."),
        Detector(2, "changed-statement", "Each statement of the file is one that the config generates."),
        Detector(3, "missing-statement", "Each statement that the config generates is in the file."),
        Detector(4, "stale-diff", "The file's diff is the diff from upstream's code."),
    )
    BAD = (
        {
            GENERATED: '''\
# Source: transformers.models.olmoe.modeling_olmoe
from torch import nn


class OlmoeRMSNorm(nn.RMSNorm):
    """Written here by hand: the next run of the config removes it."""
'''
        },
    )
    GOOD = ({GPU_CONFIG: patch_config()},)

    def check(self, generated: list[Generated], regenerated: list[Regenerated]) -> Findings:
        made = {item.config.file.path: item for item in generated if item.config is not None}
        if not made:
            raise NotApplicable("no generated file has a patch config")
        for run in regenerated:
            item = made.get(run.config.file.path)
            found = difference(run.config, item, run.result) if item is not None else None
            if found is not None:
                yield Finding(found.message, found.path, found.line, detector=found.kind)


class NoUndefinedNames(Rule):
    """Define every name that a generated file uses.

    Why: the import, or the first forward that reaches the line, raises NameError.

    Fine when: never.
    """

    id = "VEO403"
    name = "no-undefined-names-in-generated-code"
    target = "veomni"
    obligations = ("VEO-PG-09", "VEO-PG-34")
    failure_modes = ("removed-upstream-import",)
    BAD = (
        {
            GENERATED: """\
# Source: transformers.models.olmoe.modeling_olmoe
import torch


def rotate_half(x):
    return torch.cat((-x, x), dim=-1)


def apply_rotary_pos_emb(q, cos):
    return rotate_halves(q) * cos
"""
        },
    )
    GOOD = ({GPU_CONFIG: patch_config(_ROTARY)},)

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            undefined = scopes_of(item.file.text).undefined()
            if not undefined:
                continue
            seen: set[str] = set()
            for node in item.file.nodes(ast.Name):
                if node.id in undefined and node.id not in seen and isinstance(node.ctx, ast.Load):
                    seen.add(node.id)
                    yield Finding(f"undefined name '{node.id}'", item.file.path, node.lineno, node.col_offset + 1)


class ExportedNamesExist(Rule):
    """List in the `__all__` of a generated file only names that it defines.

    Why: a star import raises AttributeError, and tools that list the model's classes count a missing one.

    Fine when: never; the generator drops excluded names itself.
    """

    id = "VEO406"
    name = "exported-names-exist"
    target = "veomni"
    obligations = ("VEO-PG-16", "VEO-PG-13")
    BAD = ({GENERATED: _SOURCE + '__all__ = ["OlmoeForCausalLM", "OlmoeModel", "OlmoeHead"]\n'},)
    GOOD = ({GENERATED: _SOURCE + 'class OlmoeForCausalLM:\n    pass\n\n\n__all__ = ["OlmoeForCausalLM"]\n'},)

    def check(self, program: Program, generated: list[Generated]) -> Findings:
        for item in generated:
            bound = program.bindings(Module(item.source.module, item.file.path, False))
            if "*" not in bound and "__getattr__" not in bound:
                for name, line in exported(item).items():
                    if name not in bound:
                        yield Finding(f"'{name}' is in __all__ but is not defined", item.file.path, line)


def _means(item: Generated, node: ast.expr) -> bool:
    """Return whether an expression is transformers' decorator, under any name, called or not."""
    name = dotted(node.func if isinstance(node, ast.Call) else node)
    if name is None:
        return False
    first, _, rest = name.partition(".")
    imported = item.source.imports.get(first)
    if imported is None:
        return False
    full = ".".join(part for part in (imported.module, imported.name, rest) if part)
    return full.startswith("transformers.") and full.rpartition(".")[2] == _DECORATOR


def _wraps_class(call: ast.Call, item: Generated) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Name) and call.args[0].id in item.classes
