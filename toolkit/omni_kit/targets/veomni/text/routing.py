"""Routing of tokens to experts, by what a model's code computes.

VeOmni has no kernel slot for routers (`veomni.ops.kernel_registry`): upstream's code always stays. What it computes is
told, because the experts' kernel and the load-balancing loss take its results.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from omni_kit.pysource.eval import Native, Unsupported
from omni_kit.toys.modules import parts
from omni_kit.upstream.construction import Module
from omni_kit.upstream.construction import Tensor as Shape
from omni_kit.upstream.torch.agreement import Trial, agree, varied
from omni_kit.upstream.torch.tensors import FLOAT32, Tensor

_BATCH, _TOKENS = 2, 6


@dataclass(frozen=True)
class Scheme:
    """A way to weigh the experts that a token is routed to.

    Attributes:
        told: what it computes.
        scored: softmax or sigmoid.
        first: scores are taken of all logits, and not of the chosen ones alone.
        summed: the chosen scores are divided by their sum.
    """

    told: str
    scored: str
    first: bool
    summed: bool

    def weights(self, logits: np.ndarray, count: int) -> np.ndarray:
        """Return the weight of each expert for each token, [tokens, experts]."""
        chosen = np.argsort(-logits, axis=-1, kind="stable")[:, :count]
        picked = np.take_along_axis(self._scores(logits) if self.first else logits, chosen, -1)
        picked = picked if self.first else self._scores(picked)
        picked = picked / picked.sum(-1, keepdims=True) if self.summed else picked
        found = np.zeros_like(logits)
        np.put_along_axis(found, chosen, picked, -1)
        return found

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        if self.scored == "sigmoid":
            return np.asarray(1 / (1 + np.exp(-logits)))
        raised = np.exp(logits - logits.max(-1, keepdims=True))
        return np.asarray(raised / raised.sum(-1, keepdims=True))


SCHEMES = (
    Scheme("the largest softmax scores, not renormalised", "softmax", True, False),
    Scheme("the largest softmax scores, renormalised", "softmax", True, True),
    Scheme("the sigmoid scores of the largest logits, not renormalised", "sigmoid", True, False),
    Scheme("the sigmoid scores of the largest logits, renormalised", "sigmoid", True, True),
)


@dataclass(frozen=True)
class Block:
    """A module that routes.

    Attributes:
        module: the module that calls the experts.
        experts: the attribute that holds them.
        router: the module of its own that computes logits; the block itself where it has none.
    """

    module: Module
    experts: str
    router: Module


def routing_block(model: Module, experts: str) -> Block | None:
    """Return the first module that holds experts of a class, and what routes to them.

    Where that module has no router, what holds it may have one: its experts are then the module.
    """
    for part in parts(model):
        for name, (one, *_) in part.attributes.items():
            if isinstance(one, Module) and one.class_name == experts:
                count = one.attributes.get("num_experts", [None])[0]
                router = next(_routers(part, experts, count), None)
                outer = routing_block(model, part.class_name) if router is None else None
                return outer if outer and outer.router is not outer.module else Block(part, name, router or part)
    return None


def _routers(block: Module, experts: str, count: Any) -> Iterator[Module]:
    """Yield the modules of a block, other than its experts, that have a row of logits for each expert."""
    for one, *_ in block.attributes.values():
        weights = parts(one) if isinstance(one, Module) and one.class_name != experts else ()
        shapes = (getattr(part.attributes.get("weight", [None])[0], "shape", None) for part in weights)
        if isinstance(one, Module) and any(shape and len(shape) == 2 and shape[0] == count for shape in shapes):
            yield one


def routing_scheme(block: Block) -> Scheme | None:
    """Return the scheme that a block's routing agrees with; None if it has a rule of its own.

    Raises:
        Unsupported: it cannot be evaluated.
    """
    router = varied(block.router)
    module = router if block.router is block.module else _replaced(block.module, block.router, router)
    own = replace(block, module=module, router=router)
    return next((one for one in SCHEMES if agree(partial(_routed, own, one), low=FLOAT32)), None)


def returns_logits(router: Module, index: int) -> bool:
    """Return whether one result of a router's forward is what its weight makes of hidden states, and not a score of it.

    Raises:
        Unsupported: it cannot be evaluated.
    """
    return agree(partial(_recorded, varied(router), index), low=FLOAT32)


def _recorded(router: Module, index: int, trial: Trial) -> tuple[Any, Any]:
    layer = _logits_layer(router)
    given = trial.tensor(_BATCH * _TOKENS, trial.values.parameter(layer, "weight").shape[-1])
    results = trial.values.run(router, "forward", [given], {})
    result = results[index] if isinstance(results, list | tuple) and index < len(results) else results
    if not isinstance(result, Tensor):
        raise Unsupported("does not return a tensor there")
    logits = _logits(layer, given, trial)
    return Tensor(_rows(result), FLOAT32), Tensor(logits, FLOAT32)


def _logits(layer: Module, given: Tensor, trial: Trial) -> np.ndarray:
    logits = np.asarray(_rows(given) @ trial.values.parameter(layer, "weight").data.T)
    biased = isinstance(layer.attributes.get("bias", [None])[0], Shape)
    return logits + trial.values.parameter(layer, "bias").data if biased else logits


def _rows(tensor: Tensor) -> np.ndarray:
    """Return values as [rows, width]; a config may say that the width is 0."""
    return np.asarray(tensor.data).reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])


def _replaced(block: Module, old: Module, new: Module) -> Module:
    attributes = {name: [new if one is old else one for one in found] for name, found in block.attributes.items()}
    return Module(block.class_name, attributes, cls=block.cls)


def _routed(block: Block, scheme: Scheme, trial: Trial) -> tuple[Any, Any]:
    """Return the weight of each expert for each token: as a block passes them to its experts, and by a scheme."""
    seen: list[list[Any]] = []

    def experts(*given: Any, **named: Any) -> Any:
        seen.append([*given, *named.values()])
        return given[0]

    attributes = {**block.module.attributes, block.experts: [Native(experts)]}
    module = Module(block.module.class_name, attributes, cls=block.module.cls)
    router = _logits_layer(block.router)
    width = trial.values.parameter(router, "weight").shape[-1]
    given = trial.tensor(_BATCH, _TOKENS, width)
    try:
        trial.values.run(module, "forward", [given], {})
    except Unsupported:
        if not seen:
            raise  # else it is what comes after the experts, whose results these are not
    tensors = [one for one in seen[0][1:] if isinstance(one, Tensor)] if seen else []
    chosen = next((one for one in tensors if one.dtype.kind == "i"), None)
    weights = next((one for one in tensors if one.dtype.kind == "f"), None)
    if chosen is None or weights is None:
        raise Unsupported("does not pass indices and weights to its experts")
    count = next((one for part in (router, block.module) for one in part.attributes.get("top_k", [])), None)
    if isinstance(count, int) and chosen.shape[-1] != count:
        raise Unsupported(f"passes its experts {chosen.shape[-1]} indices per token, but its top_k is {count}")
    logits = _logits(router, given, trial)
    found = np.zeros_like(logits)
    if weights.shape == chosen.shape:
        np.put_along_axis(found, _rows(chosen), weights.data, -1)
    else:
        found = weights.data.reshape(found.shape)
    return Tensor(found, FLOAT32), Tensor(scheme.weights(logits, chosen.shape[-1]), FLOAT32)


def _logits_layer(router: Module) -> Module:
    """Return the module whose weight makes logits of hidden states."""
    found = (one for one in parts(router) if one.attributes.get("weight", [None])[0] is not None)
    layer = next(found, None)
    if layer is None:
        raise Unsupported("has no weight that makes logits")
    return layer
