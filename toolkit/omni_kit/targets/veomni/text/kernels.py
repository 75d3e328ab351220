"""Formulas of VeOmni's kernels, and whether upstream's code computes the same.

The formulas were read in `veomni.ops`: liger's RMSNorm with the casting of Llama, its rotary embedding of the whole
head in halves, its SwiGLU, the fused experts, and the load-balancing loss of Mixtral.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from omni_kit.pysource.classes import FunctionRef
from omni_kit.pysource.eval import Unsupported
from omni_kit.upstream.construction import Module
from omni_kit.upstream.construction import Tensor as Shape
from omni_kit.upstream.torch.agreement import Difference, Trial, difference, varied
from omni_kit.upstream.torch.functions import call
from omni_kit.upstream.torch.tensors import FLOAT32, INT64, Dtype, Tensor

_SIZE, _ROWS = 8, 5
_EPSILON = 0.37
"""Large enough to be seen in the numbers."""


def floats(norm: Module) -> list[str]:
    """Return the attributes of a module that may be its epsilon, the likeliest first."""
    found = [name for name, (one, *_) in norm.attributes.items() if isinstance(one, float) or "eps" in name]
    return sorted(found, key=lambda name: "eps" not in name)


def norm_difference(norm: Module, epsilon: str) -> Difference | None:
    """Find where the forward of a norm differs from weight * norm(x).

    Raises:
        Unsupported: it cannot be evaluated.
    """
    seen = varied(norm, **{epsilon: _EPSILON})

    def compare(trial: Trial) -> tuple[Any, Any]:
        weight = trial.values.parameter(seen, "weight")
        given = trial.tensor(_ROWS, *weight.shape)
        wide = trial.expect(given.to(FLOAT32))
        mean = trial.call("mean", trial.call("mul", wide, wide), -1, True)
        normed = trial.call("mul", wide, trial.call("rsqrt", trial.call("add", mean, _EPSILON)))
        wanted = trial.call("mul", weight, trial.expect(normed.to(given.dtype)))
        return trial.values.run(seen, "forward", [given], {}), wanted

    return difference(compare, (0.3, 3.0))


def mlp_difference(mlp: Module) -> Difference | None:
    """Find where the forward of an MLP differs from down_proj(silu(gate_proj(x)) * up_proj(x)).

    Raises:
        Unsupported: it cannot be evaluated.
    """

    mlp = varied(_of_known_size(mlp))

    def compare(trial: Trial) -> tuple[Any, Any]:
        values = trial.values
        gate, up, down = (mlp.attributes.get(name, [None])[0] for name in ("gate_proj", "up_proj", "down_proj"))
        if not (isinstance(gate, Module) and isinstance(up, Module) and isinstance(down, Module)):
            raise Unsupported("has no gate_proj, up_proj and down_proj")
        given = trial.tensor(_ROWS, values.parameter(gate, "weight").shape[-1])
        active = trial.call("silu", trial.expect(values.run_module(gate, given)))
        inner = trial.call("mul", active, trial.expect(values.run_module(up, given)))
        return values.run(mlp, "forward", [given], {}), trial.expect(values.run_module(down, inner))

    return difference(compare)


def _of_known_size(mlp: Module) -> Module:
    """Return an MLP, with small layers instead of those whose sizes are not known or large."""
    names = ("gate_proj", "up_proj", "down_proj")
    layers = [mlp.attributes.get(name, [None])[0] for name in names]
    shapes = [one.attributes.get("weight", [None])[0] for one in layers if isinstance(one, Module)]
    known = [one.shape for one in shapes if isinstance(one, Shape) and one.shape is not None]
    small = len(known) == len(names) and all(0 < (size or 0) < 512 for shape in known for size in shape)
    if len(shapes) < len(names) or small:
        return mlp
    sizes = [(_SIZE - 2, _SIZE), (_SIZE - 2, _SIZE), (_SIZE, _SIZE - 2)]
    biased = {
        name: layer.attributes for name, layer in zip(names, layers, strict=True)
        if isinstance(layer, Module) and isinstance(layer.attributes.get("bias", [None])[0], Shape)
    }  # fmt: skip
    made = {
        name: [Module("Linear", {"weight": [Shape(size)], **({"bias": [Shape(size[:1])]} if name in biased else {})})]
        for name, size in zip(names, sizes, strict=True)
    }
    return Module(mlp.class_name, {**mlp.attributes, **made}, cls=mlp.cls)


def rotary_difference(function: FunctionRef) -> Difference | str | None:
    """Find where a function differs from the rotation of whole heads that turns each half with the other.

    Tables of another dtype than that of the heads, and tables of fewer places than a head has, are tried, too: a
    function that makes something else of those does what the kernel does not, and a text says which.

    Raises:
        Unsupported: it cannot be evaluated.
    """

    def part(trial: Trial) -> tuple[Any, Any]:
        heads = [trial.tensor(2, count, _ROWS, _SIZE) for count in (4, 2)]
        tables = [trial.tensor(2, _ROWS, _SIZE // 2, scaled=False) for _ in range(2)]
        return trial.values.call_function(function, [*heads, *tables], {}), None

    try:
        takes_parts = difference(part) is not None
    except Unsupported:  # as it should be: the shapes do not fit
        takes_parts = False
    try:
        found = difference(partial(_whole, function, None)) or difference(partial(_whole, function, FLOAT32))
    except Unsupported:
        if takes_parts:
            return "its tables are half as wide as a head, those of the kernel as wide as a head"
        raise
    if found is None and takes_parts:
        return "it rotates as many channels as its tables have, which is all of them where partial_rotary_factor is 1"
    return found


def _whole(function: FunctionRef, dtype: Dtype | None, trial: Trial) -> tuple[Any, Any]:
    heads = [trial.tensor(2, count, _ROWS, _SIZE) for count in (4, 2)]
    half = [trial.tensor(2, _ROWS, _SIZE // 2, dtype=dtype, scaled=False) for _ in range(2)]
    tables = [call("cat", [[one, one], -1], {}) for one in half]
    last = [call("transpose", [one, 1, 2], {}) for one in heads]
    found = [trial.values.call_function(function, [*heads, *tables], {})]
    found += [trial.values.call_function(function, [*last, *tables, 2], {})]
    return found, [_rotated(trial, heads, tables, 1), _rotated(trial, last, tables, 2)]


def _rotated(trial: Trial, heads: Sequence[Tensor], tables: Sequence[Tensor], dim: int) -> list[Tensor]:
    cos, sin = (trial.call("unsqueeze", one, dim) for one in tables)
    halves = [call("chunk", [trial.expect(one), 2, -1], {}) for one in heads]
    turned = [trial.call("cat", [trial.call("neg", second), first], -1) for first, second in halves]
    return [
        trial.call("add", trial.call("mul", one, cos), trial.call("mul", other, sin))
        for one, other in zip(heads, turned, strict=True)
    ]


def experts_difference(experts: Module) -> Difference | None:
    """Find where the forward of experts differs from the sum of weight * down(silu(gate(x)) * up(x)).

    Of experts with a `limit`, VeOmni's kernels clamp the gate from above and the other half on both sides.

    Raises:
        Unsupported: it cannot be evaluated.
    """

    experts = varied(experts)
    limit = experts.attributes.get("limit", [None])[0]
    if limit is not None and not isinstance(limit, int | float):
        raise Unsupported("has a limit whose value is not known")

    def compare(trial: Trial) -> tuple[Any, Any]:
        values = trial.values
        gate_up, down = (values.parameter(experts, name) for name in ("gate_up_proj", "down_proj"))
        given = trial.tensor(_ROWS, down.shape[1])
        chosen = trial.choices(_ROWS, min(2, gate_up.shape[0]), gate_up.shape[0])
        weights = call("abs", [trial.tensor(*chosen.shape, scaled=False)], {})
        found = values.run(experts, "forward", [given, chosen, weights], {})
        return found, _mixed(trial, given, chosen, weights, gate_up, down, limit)

    return difference(compare)


def _mixed(
    trial: Trial,
    given: Tensor,
    chosen: Tensor,
    weights: Tensor,
    gate_up: Tensor,
    down: Tensor,
    limit: float | None,
) -> Tensor:
    """Return the experts' outputs in float64, token by token."""
    inner = np.einsum("th,tkih->tki", given.data, gate_up.data[chosen.data])
    gate, up = np.split(inner, 2, axis=-1)
    if limit is not None:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    silu = gate / (1 + np.exp(-gate))
    outputs = np.einsum("tki,tkhi->tkh", silu * up, down.data[chosen.data])
    weighed = outputs * weights.data[..., None]
    for one in (given.data, gate_up.data, down.data, inner, gate, up, silu, silu * up, outputs, weights.data, weighed):
        trial.expect(Tensor(one, given.dtype))
    return trial.expect(Tensor(weighed.sum(1), given.dtype))


def balancing_difference(function: FunctionRef, standard: FunctionRef) -> Difference | None:
    """Find where a load-balancing loss differs from the standard one.

    Raises:
        Unsupported: one of them cannot be evaluated.
    """

    def compare(trial: Trial) -> tuple[Any, Any]:
        logits = tuple(trial.tensor(6, 4, dtype=FLOAT32) for _ in range(2))
        mask = Tensor(np.array([[1, 1, 0], [1, 1, 1]]), INT64)
        calls = [[logits, 4, 2, None], [logits, 4, 2, mask]]
        with trial.reference():
            wanted = [trial.values.call_function(standard, given, {}) for given in calls]
        return [trial.values.call_function(function, given, {}) for given in calls], wanted

    return difference(compare, (1.0,))
