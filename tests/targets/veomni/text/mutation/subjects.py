"""The functions of real models that are rewritten: where each stands, and how torch calls it."""

import ast
import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from omni_kit.pysource.source import SourceFile
from omni_kit.targets.veomni.text.sites import find_sites
from omni_kit.upstream.transformers.models import UpstreamModel
from tests.conftest import SIZES
from tests.targets.veomni.text.mutation.truth import Call, filled, tensor

_FUNCTIONS = {
    "rotary": ("rotate_half", "apply_rotary_pos_emb"), "load-balancing-loss": ("load_balancing_loss_func",),
    "attention": ("repeat_kv", "eager_attention_forward"),
}  # fmt: skip
PATCHED = frozenset({"rms-norm", "swiglu-mlp", "experts", "rotary", "load-balancing-loss"})
READ = frozenset({"attention", "router"})
"""Sites that are read, and never patched."""


@dataclass(frozen=True)
class Subject:
    """A function that a decision rests on.

    Attributes:
        site: see `sites.Site`.
        owner: the class whose forward it is; empty for a function.
        node: the function.
        caller: the class that calls it, where torch calls that.
    """

    model: UpstreamModel
    site: str
    owner: str
    node: ast.FunctionDef
    caller: str = ""

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
        """What is decided about its site; of a router, how it is told to route."""
        found = [one for one in find_sites(model) if one.site == self.site]
        owner = self.caller if self.site == "attention" else self.owner
        mine = [one for one in found if not owner or one.target.partition(".")[0] == owner]
        if self.site == "router":
            return mine[0].reason if mine else "none"
        return mine[0].decision if mine else "none"

    def definitions(self, model: UpstreamModel) -> Sequence[ast.ClassDef | ast.FunctionDef]:
        """What torch needs of a model's file."""
        classes = [model.source.classes[name] for name in (self.owner, self.caller) if name]
        if self.owner:
            return classes
        return [*classes, *self._functions(model)]

    def _functions(self, model: UpstreamModel) -> Iterator[ast.FunctionDef]:
        return (model.source.functions[name] for name in _FUNCTIONS[self.site] if name in model.source.functions)

    @property
    def call(self) -> Call:
        """How torch calls it."""
        return _CALLS[self.site](self)


def _is(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def subjects(model: UpstreamModel, sites: Collection[str] = PATCHED) -> Iterator[Subject]:
    """The functions of a model that are decided for: patched, attending as VeOmni does, or routing in a known way."""
    for site in find_sites(model):
        known = site.site == "router" and "by the" in site.reason
        if site.site not in sites or (site.decision == "skip" and not known):
            continue
        owner = site.target.partition(".")[0]
        if site.site in {"rms-norm", "swiglu-mlp", "experts", "router"}:
            method = model.source.method(owner, "forward")
            assert method is not None
            caller = _block(model, owner) if site.site == "router" else ""
            yield Subject(model, site.site, owner, method, caller)
            continue
        for name in _FUNCTIONS[site.site]:
            if name in model.source.functions:
                caller = owner if site.site == "attention" else ""
                yield Subject(model, site.site, "", model.source.functions[name], caller)


def _block(model: UpstreamModel, router: str) -> str:
    """The class that calls a router and the experts."""
    holds = (name for name, node in model.source.classes.items()
             if f"{router}(" in ast.unparse(node) and "self.experts(" in ast.unparse(node))  # fmt: skip
    return next(holds, "")


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


def _attention(subject: Subject) -> Call:
    config = _config(subject.model)
    config._attn_implementation = "eager"

    def call(names: dict[str, Any], dtype: torch.dtype) -> tuple[Any, list[torch.Tensor]]:
        attention: Any = filled(names[subject.caller](config, 0), dtype)
        given = tensor(dtype, 2, 5, config.hidden_size)
        tables = tuple(tensor(dtype, 2, 5, attention.head_dim).detach() for _ in range(2))
        mask = tensor(dtype, 2, 1, 5, 5).detach()
        return attention(given, tables, mask)[0], [given, *attention.parameters()]

    return call


class _Seen(torch.nn.Module):
    """Experts that keep what they are called with."""

    def forward(self, hidden: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        self.given = chosen, weights
        return hidden


def _router(subject: Subject) -> Call:
    config = _config(subject.model)

    def call(names: dict[str, Any], dtype: torch.dtype) -> tuple[Any, list[torch.Tensor]]:
        block: Any = filled(names[subject.caller](config), dtype)
        router = next(one for one in block.modules() if type(one).__name__ == subject.owner)
        block.experts = _Seen()
        given = tensor(dtype, 2, 6, config.hidden_size)
        block(given)
        chosen, weights = block.experts.given
        spread = weights.new_zeros(chosen.shape[0], next(router.parameters()).shape[0]).scatter(-1, chosen, weights)
        return spread.double(), [given, *router.parameters()]

    return call


_CALLS: dict[str, Callable[[Subject], Call]] = {
    "rms-norm": _norm, "swiglu-mlp": _mlp, "experts": _experts, "rotary": _rotary, "load-balancing-loss": _balancing,
    "attention": _attention, "router": _router,
}  # fmt: skip
