"""The config of a model of a given size: a real one made narrower and shorter, with the proportions that it has.

Widths are divided before layers get few: a model of two layers spends its time in the vocabulary, which says nothing
about the others. Widths of a head stay, because kernels are made for them.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "num_single_layers")
_BY_LAYER = ("layer_types", "mlp_layer_types")
_DENSE = "first_k_dense_replace"
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_WIDTHS = (
    "hidden_size",
    "intermediate_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "q_lora_rank",
    "num_attention_heads",
    "num_key_value_heads",
)
_NARROWER = (1, 2, 4, 8, 16)
_FEWEST_LAYERS = 4
_FEWEST_EXPERTS = 8
_TOGETHER = ("n_group", "num_experts_per_tok", "moe_k")


def scaled_config(config: Mapping[str, Any], size: int, count: Callable[[Mapping[str, Any]], int]) -> dict[str, Any]:
    """Return the widest config whose model has at most `size` parameters, and of these the longest.

    Args:
        config: every value of a real config, as `config.to_dict()` gives them.
        count: how many parameters the model of a config has.

    Returns:
        A new config; where nothing is small enough, the smallest that was tried.
    """
    smallest: dict[str, Any] = dict(config)
    for narrow in _narrower(config):
        layers = _depth(config)
        smallest = with_layers(narrow, min(layers, _FEWEST_LAYERS))
        if layers <= 1 or (base := count(smallest)) > size:
            continue
        one = max(1, count(with_layers(narrow, min(layers, _FEWEST_LAYERS + 1))) - base)
        return with_layers(narrow, min(layers, _FEWEST_LAYERS + (size - base) // one))
    return smallest


def with_layers(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """Return the config with its first layers alone; one stays dense if those before the experts are."""
    made = copy.deepcopy(dict(config))
    for key in _LAYERS:
        if isinstance(made.get(key), int):
            made[key] = layers
    for key in _BY_LAYER:
        if isinstance(made.get(key), list):
            made[key] = made[key][:layers]
    if isinstance(made.get(_DENSE), int):
        made[_DENSE] = min(made[_DENSE], 1)
    return made


def _narrower(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the config at falling widths, and at each with fewer and fewer experts."""
    most = max([int(config[key]) for key in _EXPERTS if isinstance(config.get(key), int)], default=1)
    together = [2 * int(config[key]) for key in _TOGETHER if isinstance(config.get(key), int)]
    fewest = max(_FEWEST_EXPERTS, *together, 0)
    for width in _NARROWER:
        if not all(_divides(config, key, width) for key in _WIDTHS):
            continue
        for fewer in _NARROWER:
            if fewer > 1 and most // fewer < fewest:
                break
            yield _divided(_divided(config, _WIDTHS, width), _EXPERTS, fewer)


def _divided(config: Mapping[str, Any], keys: tuple[str, ...], by: int) -> dict[str, Any]:
    made = copy.deepcopy(dict(config))
    for key in keys:
        if isinstance(made.get(key), int) and made[key] > 1:
            made[key] //= by
    return made


def _divides(config: Mapping[str, Any], key: str, by: int) -> bool:
    value = config.get(key)
    return not isinstance(value, int) or value <= 1 or value % by == 0


def _depth(config: Mapping[str, Any]) -> int:
    return next((int(config[key]) for key in _LAYERS if isinstance(config.get(key), int)), 1)
