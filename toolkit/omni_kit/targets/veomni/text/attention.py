"""Determine whether VeOmni's attention functions compute what upstream's attention does when they take its place.

VeOmni registers them in transformers' table of attention functions (`veomni.ops.kernels.attention`): no code of a model
is patched. They scale, cap and mask scores, add sinks (`s_aux`), and drop every other argument.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from omni_kit.pysource.eval import Native, Unsupported
from omni_kit.upstream.construction import Config, Module
from omni_kit.upstream.construction import Tensor as Shape
from omni_kit.upstream.torch.agreement import Difference, Trial, difference, varied
from omni_kit.upstream.torch.functions import call
from omni_kit.upstream.torch.running import Table
from omni_kit.upstream.torch.tensors import FLOAT32, INT64, Tensor, tensor_of

REGISTRY = "ALL_ATTENTION_FUNCTIONS"
_ASKS_FOR_FLASH = "is_flash_attention_requested"
_IMPLEMENTATION = "_attn_implementation"
_BATCH, _TOKENS = 2, 11  # more tokens than the selections of toys keep, or nothing would be selected
_WIDTHS = ("head_dim", "qk_rope_head_dim", "rotary_dim", "rotary_ndims", "attention_head_dim")


def asks_registry(node: ast.ClassDef) -> bool:
    """Return whether the forward of a class takes its attention function from transformers' table."""
    return any(isinstance(one, ast.Name) and one.id == REGISTRY for one in ast.walk(node))


def attention_difference(attention: Module) -> Difference | None:
    """Find where an attention class computes something else with VeOmni's attention functions than with upstream's.

    Raises:
        Unsupported: it cannot be evaluated.
    """
    attention, width = varied(attention), _width(attention)
    refused: Unsupported | None = None
    for turned in _rotary_widths(attention):
        try:
            return difference(partial(_with_both, attention, width, turned), (1.0, 5.0), low=FLOAT32)
        except Unsupported as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _width(attention: Module) -> int:
    """Return the width of the hidden states: the input width of its first layer."""
    for one, *_ in attention.attributes.values():
        weight = one.attributes.get("weight", [None])[0] if isinstance(one, Module) else None
        if isinstance(weight, Shape) and weight.shape is not None and len(weight.shape) == 2 and weight.shape[-1]:
            return weight.shape[-1]
    raise Unsupported("has no layer whose size is known")


def _rotary_widths(attention: Module) -> Iterator[int]:
    """Yield possible widths of the tables of cosines: a head, or a part of it."""
    config = attention.attributes.get("config", [None])[0]
    own = (attention.attributes.get(name, [None])[0] for name in _WIDTHS)
    said = (config.get(name) for name in _WIDTHS) if isinstance(config, Config) else ()
    whole = [one for one in (*own, *said) if isinstance(one, int) and one > 1]
    yield from dict.fromkeys([*whole, *(one // 2 for one in whole), *(one // 4 for one in whole), 8])


def _with_both(attention: Module, width: int, turned: int, trial: Trial) -> tuple[Any, Any]:
    given = _arguments(attention, width, turned, trial)

    def run(implementation: str, function: Native | None) -> Any:
        config = attention.attributes.get("config", [None])[0]
        if isinstance(config, Config):
            config.set(_IMPLEMENTATION, implementation, True)
        trial.values.given[REGISTRY] = Table(function)
        trial.values.given[_ASKS_FOR_FLASH] = Native(lambda *_, flash=function is not None, **__: flash)
        result = trial.values.run(attention, "forward", [], given)
        return result[0] if isinstance(result, list | tuple) else result

    with trial.reference():
        wanted = run("flash_attention_2", Native(partial(_fused, trial, given.get("attention_mask"))))
    return run("eager", None), wanted


def _arguments(attention: Module, width: int, turned: int, trial: Trial) -> Mapping[str, Any]:
    """Return the arguments of an attention class's forward, by the names of its parameters."""
    found = attention.cls.method("forward") if attention.cls is not None else None
    if found is None:
        raise Unsupported("has no forward")
    parameters = found[1].args
    names = [one.arg for one in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)][1:]
    defaults = [one.arg for one in parameters.args[len(parameters.args) - len(parameters.defaults) :]]
    positions = tensor_of([list(range(_TOKENS))] * _BATCH, INT64)
    known: Mapping[str, Callable[[], Any]] = {
        "hidden_states": lambda: trial.tensor(_BATCH, _TOKENS, width),
        "attention_mask": lambda: trial.tensor(_BATCH, 1, _TOKENS, _TOKENS, scaled=False),
        "position_embeddings": lambda: tuple(trial.tensor(_BATCH, _TOKENS, turned, scaled=False) for _ in range(2)),
        "position_ids": lambda: positions,
        "cache_position": lambda: call("select", [positions, 0, 0], {}),
        "cos": lambda: trial.tensor(_BATCH, _TOKENS, turned, scaled=False),
        "sin": lambda: trial.tensor(_BATCH, _TOKENS, turned, scaled=False),
    }
    given = {name: known[name]() for name in names if name in known}
    left = [name for name in names if name not in known and name not in defaults]
    kwonly = {one.arg for one, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True) if default}
    return {**given, **dict.fromkeys(name for name in left if name not in kwonly)}


def _fused(
    trial: Trial,
    mask: Tensor | None,
    module: Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **dropped: Any,
) -> tuple[Tensor, None]:
    """Return VeOmni's attention: [batch, heads, tokens, channels] to [batch, tokens, heads, channels].

    It makes its own causal mask: what a class adds to the mask that it was given is lost.
    """
    groups = query.shape[1] // key.shape[1]
    key, value = (trial.call("repeat_interleave", one, groups, 1) for one in (key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = trial.call("mul", trial.call("matmul", query, call("transpose", [key, 2, 3], {})), scale)
    if softcap is not None:
        scores = trial.call("mul", trial.call("tanh", trial.call("mul", scores, 1 / softcap)), softcap)
    if attention_mask is not None:
        scores = trial.call("add", scores, trial.expect(attention_mask if mask is None else mask))
    if s_aux is not None:
        sinks = call("expand", [call("reshape", [s_aux, 1, -1, 1, 1], {}), *scores.shape[:3], 1], {})
        scores = trial.call("cat", [scores, sinks], -1)
    shares = trial.call("narrow", trial.call("softmax", scores, -1), -1, 0, key.shape[2])
    shares = trial.call("dropout", shares, dropout, True)
    return call("transpose", [trial.call("matmul", shares, value), 1, 2], {}), None
