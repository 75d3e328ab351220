"""Chooses the layers of a toy: the first of each kind that a config has, in the order of the model."""

from collections.abc import Mapping, Sequence
from typing import Any

from omni_kit.upstream.transformers.configs import BY_LAYER

COUNTS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "depth", "layers", "encoder_layers", "num_blocks")
# Layers of the decoder, in models that have both.
_DECODER_COUNTS = ("decoder_layers", "num_decoder_layers")
# Layer i belongs to one kind below the number, to another from it on.
_THRESHOLDS = (
    "first_k_dense_replace",
    "moe_layer_start_index",
    "max_window_layers",
    "num_hash_layers",
    "num_dense_layers",
)
# Every n-th layer is of another kind; with the key that shifts it.
_PERIODS: Mapping[str, str | None] = {
    "decoder_sparse_step": None,
    "interleave_moe_layer_step": None,
    "moe_layer_interval": None,
    "moe_layer_freq": None,
    "moe_every_n_layers": None,
    "encoder_sparse_step": None,
    "full_attention_interval": None,
    "cross_attention_interval": None,
    "attn_layer_period": "attn_layer_offset",
    "expert_layer_period": "expert_layer_offset",
}
_INDEXES = (
    "mlp_only_layers",
    "moe_layers",
    "full_attn_idxs",
    "attn_layer_indices",
    "fullatt_block_indexes",
    "deepstack_visual_indexes",
    "intermediate_layers_indices",
    "global_attn_indexes",
    "hybrid_layer_ids",
)
# What happens at these layers goes to places of their own, in order: two of them show a wrong order.
_ORDERED = ("deepstack_visual_indexes", "intermediate_layers_indices")
# Layers of this kind hold one block in common: two of them show whether it is one.
_SHARED = "hybrid"
# For each layer, the layer that it takes something from.
_SOURCES = ("kv_source_layers",)
_NOT_BY_LAYER = ("token_id", "token_ids", "multipliers", "limit", "channels", "kernel_sizes", "architectures")
_FEWEST = 2


def shrink_layers(toy: dict[str, Any]) -> None:
    """Cut the layers of `toy` in place: counts, lists with one item a layer, lists of layer numbers, thresholds.

    A config without a layer count is left as it is.
    """
    counts = [key for key in COUNTS if isinstance(toy.get(key), int)]
    if not counts:
        return
    total = toy[counts[0]]
    lists = [key for key, value in toy.items() if isinstance(value, list) and len(value) == total]
    lists = [key for key in lists if key not in _INDEXES and not key.endswith(_NOT_BY_LAYER)]
    indexes = [key for key in _INDEXES if isinstance(toy.get(key), list)]
    thresholds = [key for key in _THRESHOLDS if isinstance(toy.get(key), int)]
    own = _own_settings(toy)
    kinds = [(*_kind(toy, layer, lists, indexes, thresholds), *own.get(layer, {})) for layer in range(total)]
    chosen = _choose(total, kinds, _shortest(toy))
    if toy.get("num_kv_shared_layers"):  # the last layers take keys and values from earlier ones of their kind
        chosen = chosen if len(chosen) >= 2 * _FEWEST else chosen * 2
        toy["num_kv_shared_layers"] = len(chosen) // 2
    for key in lists:
        toy[key] = [toy[key][layer] for layer in chosen]
    for key in (key for key in _SOURCES if isinstance(toy.get(key), list)):
        sources = [toy[key][layer] for layer in chosen]
        toy[key] = [chosen.index(s) if s in chosen else new for new, s in enumerate(sources)]
    for key in indexes:
        toy[key] = [new for new, layer in enumerate(chosen) if layer in toy[key]]
    if own:
        toy[BY_LAYER] = {str(new): own[layer] for new, layer in enumerate(chosen) if layer in own}
    for key in thresholds:
        toy[key] = sum(layer < toy[key] for layer in chosen)
    for key in (*counts, *(key for key in _DECODER_COUNTS if isinstance(toy.get(key), int))):
        toy[key] = len(chosen)
    if isinstance(toy.get("moe_layer_end_index"), int):
        toy["moe_layer_end_index"] = len(chosen) - 1


def _own_settings(toy: Mapping[str, Any]) -> dict[int, Any]:
    """Return the settings of single layers, by number; settings by type of layer need no change."""
    table = toy.get(BY_LAYER)
    keys = table if isinstance(table, dict) else {}
    return {int(key): value for key, value in keys.items() if str(key).isdigit()}


def _kind(
    toy: Mapping[str, Any], layer: int, lists: Sequence[str], indexes: Sequence[str], thresholds: Sequence[str]
) -> tuple[Any, ...]:
    listed = [(repr(toy[key][layer]), _turn(toy[key], layer)) for key in lists]
    return (*listed, *(_place(key, toy[key], layer) for key in indexes), *(layer < toy[key] for key in thresholds))


def _turn(values: Sequence[Any], layer: int) -> int:
    """1 for the first layer that shares its weights with all of its kind, 2 for the later ones; 0 for other layers."""
    return min(2, 1 + values[:layer].count(_SHARED)) if values[layer] == _SHARED else 0


def _place(key: str, layers: Sequence[int], layer: int) -> int:
    """0 for a layer that the list leaves out, 1 for one that it names; in ordered lists 2 for the later ones."""
    if layer not in layers:
        return 0
    return min(2, 1 + sorted(layers).index(layer)) if key in _ORDERED else 1


def _choose(total: int, kinds: Sequence[Any], fewest: int) -> list[int]:
    """Return the first layer of each kind, then as many from the start as are needed for `fewest`."""
    chosen = {kinds.index(kind) for kind in dict.fromkeys(kinds)}
    for layer in range(total):
        if len(chosen) >= min(fewest, total):
            break
        chosen.add(layer)
    return sorted(chosen)


def _shortest(toy: dict[str, Any]) -> int:
    """Return how many layers show one whole period; periods themselves shrink to the smallest that still alternates."""
    fewest = _FEWEST
    for key, offset in _PERIODS.items():
        period = toy.get(key)
        if not isinstance(period, int) or period <= 1 or "layer_types" in toy:
            continue
        toy[key] = min(period, 3 if key.startswith("attn") else 2)
        if offset and isinstance(toy.get(offset), int):
            toy[offset] = min(toy[offset], toy[key] - 1)
        fewest = max(fewest, 2 * toy[key])
    return fewest
