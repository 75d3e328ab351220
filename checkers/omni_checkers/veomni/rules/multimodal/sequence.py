"""Rules about sequence parallelism in models with pictures or sound: VEO608 and VEO609."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.facts.generated import Generated
from omni_kit.pysource.nodes import argument
from omni_kit.pysource.source import dotted
from omni_kit.upstream.kinds import MULTIMODAL

_FILE = "generated/patched_modeling_qwen3_vl_gpu.py"
_HEAD = """\
# Source: transformers.models.qwen3_vl.modeling_qwen3_vl
import torch
import torch.distributed as dist
from transformers import PreTrainedModel
from veomni.distributed.parallel_state import get_parallel_state


class Qwen3VLModel(PreTrainedModel):
"""
_GATHER = """\
    def whole_tokens(self, input_ids):
        parts = [torch.zeros_like(input_ids) for _ in range(get_parallel_state().sp_size)]
        dist.all_gather(parts, input_ids, group=get_parallel_state().sp_group)
        return torch.cat(parts, dim={dim})
"""
_POSITIONS = """\
    def positions(self, input_ids, mm_token_type_ids, position_ids=None):
        if position_ids is None:
{body}            position_ids = self.get_rope_index(input_ids, mm_token_type_ids)
        return position_ids
"""
_RAISES = """\
            if get_parallel_state().sp_enabled:
                raise RuntimeError("position_ids must come from the data pipeline")
"""


def _example(text: str) -> dict[str, str]:
    return {_FILE: _HEAD + text}


class TokensGatheredAlongSequence(Rule):
    """Concatenate token ids gathered from all ranks along the sequence: `dim=1`.

    Why: a batch is one packed row, [1, tokens of the rank]. Along dim 0 the ranks become rows of a batch: with sequence
    parallelism, placeholder masks have another shape or images land on the wrong tokens.

    Fine when: the tensor has no batch dimension.
    """

    id = "VEO608"
    name = "gathered-token-ids-joined-along-sequence"
    target = "veomni"
    obligations = ("VEO-SP-08",)
    failure_modes = ("sp-gather-wrong-dim",)
    example_of = "qwen3_vl"
    BAD = (_example(_GATHER.format(dim=0)),)
    GOOD = (_example(_GATHER.format(dim=1)),)

    def check(self, generated: list[Generated]) -> Findings:
        judged = False
        for item in generated:
            for owner, function in item.patched:
                gathered = set(_gathered(function))
                for call in _joins(function, gathered):
                    judged = True
                    if _dim(call) not in {1, -1}:
                        message = f"{owner}.{function.name} joins gathered token ids along dim {_dim(call)}"
                        yield Finding(message, item.file.path, call.lineno, call.col_offset + 1)
        if not judged:
            raise NotApplicable("nothing gathers token ids")


class PositionsFromPipeline(Rule):
    """Raise in a sequence-parallel forward without `position_ids` instead of computing them locally.

    Why: each rank has only its part of the sequence. Locally computed positions start at 0 on every rank and miss
    images on other ranks; the loss is slightly worse, without an error.

    Fine when: the positions come from gathered tokens.
    """

    id = "VEO609"
    name = "no-local-positions-under-sequence-parallelism"
    severity = Severity.warning
    target = "veomni"
    kinds = MULTIMODAL
    obligations = ("VEO-SP-09",)
    failure_modes = ("sp-sharding-set-wrong",)
    example_of = "qwen3_vl"
    BAD = (_example(_POSITIONS.format(body="")),)
    GOOD = (_example(_POSITIONS.format(body=_RAISES)),)

    def check(self, generated: list[Generated]) -> Findings:
        judged = False
        for item in generated:
            for owner, function in item.patched:
                for branch in _without_positions(function):
                    judged = True
                    if not _guarded(function, branch):
                        message = f"{owner}.{function.name} computes positions from the tokens of one rank"
                        yield Finding(message, item.file.path, branch.lineno)
        if not judged:
            raise NotApplicable("no patched forward computes positions")


def _gathered(function: ast.FunctionDef) -> Iterator[str]:
    """Lists that token ids are gathered into."""
    for node in walked(function):
        if isinstance(node, ast.Call) and (dotted(node.func) or "").endswith("all_gather"):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            names = [dotted(value) or "" for value in given[:2]]
            if len(names) == 2 and "ids" in names[1]:
                yield names[0]


def _joins(function: ast.FunctionDef, lists: set[str]) -> Iterator[ast.Call]:
    for node in walked(function):
        if isinstance(node, ast.Call) and (dotted(node.func) or "").rpartition(".")[2] in {
            "cat",
            "concat",
            "concatenate",
        }:
            first = argument(node, 0, "tensors")
            if first is not None and dotted(first) in lists:
                yield node


def _dim(call: ast.Call) -> int:
    given = (
        call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg in {"dim", "axis"}), None)
    )
    try:
        return int(ast.literal_eval(given)) if given is not None else 0
    except (ValueError, TypeError):
        return 1  # not known


def _without_positions(function: ast.FunctionDef) -> Iterator[ast.If]:
    """Branches for `position_ids is None` that compute them."""
    for node in walked(function):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "position_ids is None":
            made = (n for n in walked(node) if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call))
            if any("position_ids" in ast.unparse(n.targets[0]) and _from_tokens(n.value) for n in made):
                yield node


def _from_tokens(value: ast.expr) -> bool:
    name = dotted(value.func) or "" if isinstance(value, ast.Call) else ""
    return name.rpartition(".")[2] in {"get_rope_index", "compute_3d_position_ids"}


def _guarded(function: ast.FunctionDef, branch: ast.If) -> bool:
    """Return whether the function raises because of sequence parallelism, or makes positions from gathered tokens."""
    conditions = (node for node in walked(function) if isinstance(node, ast.If))
    parallel = [node for node in conditions if "sp_enabled" in ast.unparse(node.test)]
    if any(isinstance(inner, ast.Raise) for node in parallel for inner in walked(node)):
        return True
    joins = {id(call) for call in _joins(function, set(_gathered(function)))}
    assigned = (node for node in walked(function) if isinstance(node, ast.Assign))
    whole = {dotted(node.targets[0]) for node in assigned if any(id(inner) in joins for inner in walked(node.value))}
    return any(id(node) in joins or dotted(node) in whole for node in walked(branch) if isinstance(node, ast.expr))
