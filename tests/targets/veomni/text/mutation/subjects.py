"""The functions of real models that are rewritten: where each stands, and how torch calls it."""

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from omni_kit.pysource.source import SourceFile
from omni_kit.targets.veomni.text.sites import find_sites
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.traits import profile
from tests.conftest import SIZES
from tests.targets.veomni.text.mutation.truth import Call, filled, tensor

_FUNCTIONS = {"rotary": ("rotate_half", "apply_rotary_pos_emb"), "load-balancing-loss": ("load_balancing_loss_func",)}


@dataclass(frozen=True)
class Subject:
    """A function that is patched as it stands.

    Attributes:
        site: see `sites.SLOTS`.
        owner: the class whose forward it is; empty for a function.
        node: the function.
    """

    model: UpstreamModel
    site: str
    owner: str
    node: ast.FunctionDef

    def with_node(self, node: ast.FunctionDef) -> UpstreamModel:
        """The model whose file has another definition in its place."""
        tree = copy.deepcopy(self.model.source.tree)
        for item in tree.body:
            if isinstance(item, ast.ClassDef) and item.name == self.owner:
                item.body = [node if _is(one, self.node.name) else one for one in item.body]
        if not self.owner:
            tree.body = [node if _is(one, self.node.name) else one for one in tree.body]
        tree = ast.parse(ast.unparse(ast.fix_missing_locations(tree)))
        source = self.model.source
        return replace(self.model, source=SourceFile(source.library, source.module, source.path, source.text, tree))

    def decision(self, model: UpstreamModel) -> str:
        """What is decided about its site."""
        found = [one for one in find_sites(model, profile(model)) if one.site == self.site]
        mine = [one for one in found if not self.owner or one.target.partition(".")[0] == self.owner]
        return mine[0].decision if mine else "none"

    def definitions(self, model: UpstreamModel) -> Sequence[ast.ClassDef | ast.FunctionDef]:
        """What torch needs of a model's file."""
        if self.owner:
            return [model.source.classes[self.owner]]
        return [model.source.functions[name] for name in _FUNCTIONS[self.site] if name in model.source.functions]

    @property
    def call(self) -> Call:
        """How torch calls it."""
        return _CALLS[self.site](self)


def _is(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def subjects(model: UpstreamModel) -> Iterator[Subject]:
    """The patched functions of a model."""
    for site in find_sites(model, profile(model)):
        if site.decision != "patch" or site.site == "causal-lm-loss":
            continue
        owner = site.target.partition(".")[0] if site.site in {"rms-norm", "swiglu-mlp", "experts"} else ""
        if owner:
            method = model.source.method(owner, "forward")
            assert method is not None
            yield Subject(model, site.site, owner, method)
            continue
        for name in _FUNCTIONS[site.site]:
            if name in model.source.functions:
                yield Subject(model, site.site, "", model.source.functions[name])


def _config(model: UpstreamModel) -> Any:
    from transformers import AutoConfig

    default = AutoConfig.for_model(model.config.model_type)
    return AutoConfig.for_model(model.config.model_type, **{k: v for k, v in SIZES.items() if hasattr(default, k)})


def _norm(subject: Subject) -> Call:
    def call(names: dict[str, Any], dtype: torch.dtype) -> tuple[Any, list[torch.Tensor]]:
        norm = filled(names[subject.owner](8), dtype)
        for name in [name for name, value in vars(norm).items() if isinstance(value, float)]:
            setattr(norm, name, 0.37)  # an epsilon that is seen in the numbers
        given = tensor(dtype, 2, 5, 8, scale=2.0)
        return norm(given), [given, *norm.parameters()]

    return call


def _mlp(subject: Subject) -> Call:
    config = _config(subject.model)

    def call(names: dict[str, Any], dtype: torch.dtype) -> tuple[Any, list[torch.Tensor]]:
        mlp = filled(names[subject.owner](config), dtype)
        given = tensor(dtype, 2, 5, next(mlp.parameters()).shape[-1])
        return mlp(given), [given, *mlp.parameters()]

    return call


def _experts(subject: Subject) -> Call:
    config = _config(subject.model)

    def call(names: dict[str, Any], dtype: torch.dtype) -> tuple[Any, list[torch.Tensor]]:
        experts = filled(names[subject.owner](config), dtype)
        count, _, width = dict(experts.named_parameters())["gate_up_proj"].shape
        given = tensor(dtype, 9, width)
        chosen = torch.stack([torch.randperm(count)[:2] for _ in range(9)])
        weights = tensor(dtype, 9, 2)
        return experts(given, chosen, weights), [given, weights, *experts.parameters()]

    return call


def _rotary(subject: Subject) -> Call:
    def call(names: dict[str, Any], dtype: torch.dtype) -> tuple[Any, list[torch.Tensor]]:
        heads = [tensor(dtype, 2, count, 5, 8) for count in (4, 2)]
        tables = [torch.cat([one, one], -1) for one in (tensor(dtype, 2, 5, 4), tensor(dtype, 2, 5, 4))]
        return names["apply_rotary_pos_emb"](*heads, *tables), heads

    return call


def _balancing(subject: Subject) -> Call:
    def call(names: dict[str, Any], dtype: torch.dtype) -> tuple[Any, list[torch.Tensor]]:
        logits = tuple(tensor(dtype, 6, 4) for _ in range(2))
        mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
        function = names["load_balancing_loss_func"]
        return [function(logits, 4, 2, one) for one in (None, mask)], list(logits)

    return call


_CALLS: dict[str, Callable[[Subject], Call]] = {
    "rms-norm": _norm, "swiglu-mlp": _mlp, "experts": _experts, "rotary": _rotary, "load-balancing-loss": _balancing,
}  # fmt: skip
