"""Runs upstream's classes next to the reference of the kernel that replaces them: forward and gradient, on a toy."""

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import transformers.modeling_utils  # which every modeling file imports: once, before the process is forked
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from omni_kit.targets.veomni.runtime.attention import packed_attention
from omni_kit.targets.veomni.runtime.references import experts, load_balancing_loss, rms_norm, rotary, swiglu_mlp

_CLOSE = 1e-4
_ROUNDED_ELSEWHERE = 0.1
"""Share of numbers in bfloat16: another order of operations changes few of them, another place of rounding many."""
_ROUND_THEIR_OWN_WAY = frozenset({"load-balancing-loss", "attention"})
"""The kernels of these round in other places than upstream does."""
_REFERENCE = "omni_kit_reference"
_SEEN = 0.37
"""An epsilon and a limit that are seen in the numbers."""
_TOKENS = 11  # of a sequence: more than the selections of toys keep, or nothing would be selected
_SCALES = (1.0, 30.0, 0.3)
"""Scales of inputs: large ones show a clamp, small ones an epsilon."""

Pair = tuple[Any, Any, list[torch.Tensor]]
"""Upstream's result, the kernel's result, and the tensors whose gradients count."""
Outcome = tuple[str, str]
"""agrees, differs or not run; and what differs, or why it was not run."""


def try_sites(job: Mapping[str, Any]) -> list[Outcome]:
    """Compare upstream's code with the kernels.

    Args:
        job: `module` and `class` of the model, its small `config` with its model_type, and `sites`: dicts of `site`,
            `owner` (the class or function) and `epsilon`.

    Returns:
        The outcome of each site.
    """
    modeling = importlib.import_module(job["module"])
    config = transformers.AutoConfig.for_model(**job["config"])
    config._experts_implementation = config._attn_implementation = "eager"
    built = getattr(modeling, job["class"])(config)
    config._experts_implementation = "eager"  # else the experts' decorator takes another function
    parts = {type(one).__name__: one for one in built.modules()}
    return [_outcome(modeling, parts, site) for site in job["sites"]]


def _outcome(modeling: Any, parts: Mapping[str, nn.Module], site: Mapping[str, str]) -> Outcome:
    owner = parts.get(site["owner"]) or getattr(modeling, site["owner"], None)
    if owner is None or isinstance(owner, type):
        return "not run", "the toy has no such module"
    if isinstance(owner, nn.Module):
        for name in [name for name, value in vars(owner).items() if isinstance(value, float)]:
            setattr(owner, name, getattr(owner, name) * 1.3 + 0.11)  # a factor of 1 may be none in the next config
    try:
        found = next(filter(None, _differences(site, owner, parts)), "")
    except Exception as error:  # whatever the class raises for these inputs
        return "not run", f"{type(error).__name__}: {error}".splitlines()[0]
    return ("differs", found) if found else ("agrees", "")


def _differences(site: Mapping[str, str], owner: Any, parts: Mapping[str, nn.Module]) -> Iterator[str]:
    """Yield the differences in each trial: of several sizes in float32, then in bfloat16, where rounding shows."""
    make = _PAIRS[site["site"]]
    for seed, scale in enumerate(_SCALES):
        found, wanted, leaves = make(_filled(owner, torch.float32, seed), site["epsilon"], Inputs(scale, parts=parts))
        yield _unlike(found, wanted)
        yield _distance("forward", found, wanted)
        yield _distance("gradient", *_gradients(found, wanted, leaves))
    if site["site"] == "rotary":
        yield from _of_other_tables(owner)
    if site["site"] not in _ROUND_THEIR_OWN_WAY:
        found, wanted, _ = make(_filled(owner, torch.bfloat16, 0), site["epsilon"], Inputs(1.0, torch.bfloat16))
        yield _unlike(found, wanted)
        shares = [float((a != b).float().mean()) for a, b in zip(_tensors(found), _tensors(wanted), strict=True)]
        if max(shares) > _ROUNDED_ELSEWHERE:
            yield f"{max(shares):.0%} of the numbers in bfloat16 rounded differently"


def _filled(owner: Any, dtype: torch.dtype, seed: int) -> Any:
    torch.manual_seed(seed)
    for parameter in owner.parameters() if isinstance(owner, nn.Module) else ():
        parameter.requires_grad_().data = (torch.randn(parameter.shape) * 0.5).to(dtype)
    return owner


def _unlike(found: Any, wanted: Any) -> str:
    """Return the first difference in form: shape, dtype or number of tensors."""
    pairs = list(zip(_tensors(found), _tensors(wanted), strict=False))
    if len(_tensors(found)) != len(_tensors(wanted)):
        return f"{len(_tensors(found))} results instead of {len(_tensors(wanted))}"
    shown = (f"{a.dtype} {list(a.shape)} instead of {b.dtype} {list(b.shape)}" for a, b in pairs
             if a.shape != b.shape or a.dtype != b.dtype)  # fmt: skip
    return next(shown, "")


def _distance(what: str, found: Any, wanted: Any) -> str:
    pairs = zip(_tensors(found), _tensors(wanted), strict=True)
    off = max(_off(a.detach(), b.detach()) for a, b in pairs)
    return "" if off < _CLOSE else f"{what} off by {off:.1e}"


def _off(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-9))


def _tensors(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def _gradients(found: Any, wanted: Any, leaves: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the gradients of both, each output weighted differently at each position."""

    def of(value: Any) -> list[torch.Tensor]:
        total = torch.stack([(one * (1 + torch.arange(one.numel()).reshape(one.shape) % 3)).sum() for one in value])
        given = torch.autograd.grad(total.sum(), leaves, allow_unused=True)
        return [torch.zeros(()) if one is None else one for one in given]

    return of(_tensors(found)), of(_tensors(wanted))


@dataclass(frozen=True)
class Inputs:
    """Random inputs of one size and dtype, and the toy's modules by class name."""

    scale: float
    dtype: torch.dtype = torch.float32
    parts: Mapping[str, nn.Module] = field(default_factory=dict)

    def tensor(self, *shape: int) -> torch.Tensor:
        """Return a leaf of the trial's size."""
        return (torch.randn(*shape) * self.scale).to(self.dtype).requires_grad_()

    def plain(self, *shape: int) -> torch.Tensor:
        """Return a leaf whose numbers are around 1."""
        return torch.randn(*shape).to(self.dtype).requires_grad_()


def _norm(norm: Any, epsilon: str, inputs: Inputs) -> Pair:
    setattr(norm, epsilon, _SEEN)
    given = inputs.tensor(2, 5, norm.weight.shape[0])
    return norm(given), rms_norm(given, norm.weight, _SEEN), [given, norm.weight]


def _mlp(mlp: Any, epsilon: str, inputs: Inputs) -> Pair:
    given = inputs.tensor(2, 5, mlp.gate_proj.weight.shape[-1])
    return mlp(given), swiglu_mlp(mlp, given), [given, *mlp.parameters()]


def _experts(module: Any, epsilon: str, inputs: Inputs) -> Pair:
    if getattr(module, "limit", None) is not None:
        module.limit = _SEEN
    count, _, width = module.gate_up_proj.shape
    chosen_of_each = 2 if inputs.dtype == torch.float32 else 1  # the order of additions is nobody's business
    given, weights = inputs.tensor(9, width), inputs.plain(9, chosen_of_each)
    chosen = torch.stack([torch.randperm(count)[:chosen_of_each] for _ in range(9)])
    leaves = [given, weights, *module.parameters()]
    return module(given, chosen, weights), experts(module, given, chosen, weights), leaves


def _rotary(function: Any, epsilon: str, inputs: Inputs) -> Pair:
    heads = [inputs.tensor(2, count, 5, 8) for count in (4, 2)]
    tables = [torch.cat([one, one], -1).detach() for one in (inputs.plain(2, 5, 4), inputs.plain(2, 5, 4))]
    return function(*heads, *tables), rotary(heads[0], heads[1], tables[0], tables[1]), heads


def _of_other_tables(function: Any) -> Iterator[str]:
    """Yield the function's results for tables that the kernel would treat differently."""
    heads = [torch.randn(2, count, 5, 8) for count in (4, 2)]
    try:
        found = function(*heads, torch.randn(2, 5, 4), torch.randn(2, 5, 4))
    except (RuntimeError, IndexError):  # the shapes do not fit, as for the kernel
        pass
    else:
        yield f"tables of half a head give {[list(one.shape) for one in _tensors(found)]}, and the kernel raises"
    wide = [torch.cat([one, one], -1) for one in (torch.randn(2, 5, 4), torch.randn(2, 5, 4))]
    narrow = [one.bfloat16() for one in heads]
    yield _unlike(function(*narrow, *wide), rotary(narrow[0], narrow[1], wide[0], wide[1]))


def _balancing(function: Any, epsilon: str, inputs: Inputs) -> Pair:
    logits = tuple(inputs.plain(6, 4) for _ in range(2))
    masks = (None, torch.tensor([[1, 1, 0], [1, 1, 1]]))
    found, wanted = ([one(logits, 4, 2, mask) for mask in masks] for one in (function, load_balancing_loss))
    return found, wanted, list(logits)


def _attention(module: Any, epsilon: str, inputs: Inputs) -> Pair:
    module.eval()  # no dropout, under whatever name it has one
    width = next(one for one in module.modules() if isinstance(one, nn.Linear)).in_features
    # small, so that the softmax is not the step that makes much of rounding
    given = replace(inputs, scale=0.02 * inputs.scale).tensor(2, _TOKENS, width)
    taken, config = inspect.signature(module.forward).parameters, module.config
    positions = torch.arange(_TOKENS).expand(2, -1)
    turns = [one for name, one in inputs.parts.items() if "Rotary" in name]
    mask = torch.full((_TOKENS, _TOKENS), torch.finfo(inputs.dtype).min).triu(1).expand(2, 1, -1, -1)
    named = {"hidden_states": given, "attention_mask": mask, "position_ids": positions}
    if "position_embeddings" in taken:
        by_layer = "layer_type" in inspect.signature(turns[0].forward).parameters
        told = {"layer_type": config.layer_types[module.layer_idx]} if by_layer else {}
        named["position_embeddings"] = turns[0](given, positions, **told)
    called = {name: one for name, one in named.items() if name in taken}
    ALL_ATTENTION_FUNCTIONS[_REFERENCE] = _in_veomnis_place
    results = []
    for name in ("eager", _REFERENCE):
        config._attn_implementation = name
        result = module(**called)
        results.append(result[0] if isinstance(result, tuple) else result)
    config._attn_implementation = "eager"
    return results[0], results[1], [given, *module.parameters()]


def _in_veomnis_place(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any,
    dropout: float = 0.0, scaling: float | None = None, sliding_window: int | None = None,
    softcap: float | None = None, s_aux: torch.Tensor | None = None, **dropped: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """Return VeOmni's attention of rows without windows: the mask of the trial has none."""
    given = [one.transpose(1, 2) for one in (query, key, value)]
    how: dict[str, Any] = {"softmax_scale": scaling, "softcap": softcap, "s_aux": s_aux}
    return packed_attention(given[0], given[1], given[2], None, query.shape[2], True, **how), None


_PAIRS: Mapping[str, Callable[[Any, str, Inputs], Pair]] = {
    "rms-norm": _norm, "swiglu-mlp": _mlp, "experts": _experts, "rotary": _rotary, "load-balancing-loss": _balancing,
    "attention": _attention,
}  # fmt: skip
