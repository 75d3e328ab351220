"""Derives a toy config from a real one: small, legal, and with no two dimensions alike.

A toy keeps every decision of the real config (norms, biases, routing, rope, ties) and changes only sizes, so that code
which mixes up two dimensions meets a shape error or a wrong number instead of working by luck.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.toys.configs.layers import COUNTS, shrink_layers
from omni_kit.toys.configs.sizes import (
    AT_MOST,
    AUDIO,
    COMPLETED,
    DROPPED,
    EVEN_HEADS,
    FIXED,
    HEAD_DIM,
    HIDDEN,
    INPUT_WIDTH,
    NO_ROUTER_LOSS,
    NOISE,
    OPEN,
    SIZES,
    SQUARE,
    THREE_AXES,
    TO_TEXT_WIDTH,
    VISION,
)
from omni_kit.toys.configs.tokens import fit_token_ids, is_part
from omni_kit.upstream.transformers.configs import BY_LAYER

_PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}


def toy_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a toy of a complete config, that of a text model or one with vision, audio and text parts.

    Args:
        config: every value of the config, defaults included, as `config.to_dict()` gives them. Values that could not be
            read are left out: the config class fills them in.

    Returns:
        A new dict with a few layers (one of each kind that the config has, at least two), pairwise distinct small
        dimensions, token ids inside the small vocabulary, no dropout and float32 weights.
    """
    config = _known(config)
    toy = _toy(config, "text" if _parts(config) else _role("", config, "text"))
    fit_token_ids(toy)
    toy["dtype"] = "float32"
    return toy


def _known(value: Any) -> Any:
    """Return a config without what could not be read, and with lists for the tuples that classes have as defaults."""
    if isinstance(value, Mapping):
        return {key: _known(one) for key, one in value.items() if one is not UNKNOWN}
    return [_known(one) for one in value] if isinstance(value, list | tuple) else value


def _toy(config: Mapping[str, Any], role: str, name: str = "") -> dict[str, Any]:
    config = _completed(config, str(config.get("model_type") or name))
    parts = _parts(config)
    toy = {key: copy.deepcopy(value) for key, value in config.items() if key not in DROPPED and key not in parts}
    shrink_layers(toy)
    if role == "text":
        _set_text_sizes(toy, config)
        _fit_latent_attention(toy, config)
        _fit_rope(toy, config)
    else:
        _set_tower_sizes(toy, VISION if role == "vision" else AUDIO)
    _fit_layers(toy, config)
    _silence(toy)
    for key, part in parts.items():
        toy[key] = _toy(part, _role(key, part, role), key)
    if isinstance(toy.get("vision_config"), dict):
        _fit_pictures(toy, config["vision_config"])
    _fit_projectors(toy)
    return toy


def _fit_projectors(toy: dict[str, Any]) -> None:
    """Make what a projector with a config of its own attends to as wide as the tower before it."""
    towers = [toy[key] for key in ("vision_config", "audio_config", "encoder_config") if isinstance(toy.get(key), dict)]
    widths = [one[key] for one in towers for key in ("hidden_size", "hidden_dim") if _is_size(one.get(key))]
    for part in _parts(toy).values():
        if "encoder_hidden_size" in part and widths:
            part["encoder_hidden_size"] = widths[0]


def _fit_pictures(toy: dict[str, Any], vision: Mapping[str, Any]) -> None:
    """Fit the settings that a config repeats about its tower: widths, resolutions, and the layers that are read."""
    small = toy["vision_config"]
    for key in TO_TEXT_WIDTH:
        _set_size(toy, key, HIDDEN)
    scale = toy.get("scale_factor") or small.get("scale_factor")  # so many rows and columns of patches become one
    if all(map(_is_size, (scale, small.get("image_size"), small.get("patch_size")))):
        small["image_size"] += -small["image_size"] % (small["patch_size"] * scale)
    width = vision.get("hidden_size", 0)
    parts = [one for one in toy.values() if isinstance(one, dict) and "num_embeddings" in one]
    for part in (one for one in parts if one.get("latent_channels") == width):  # makes codes of the tower's output
        part["latent_channels"] = small["hidden_size"]
        part["num_embeddings"] = min(part["num_embeddings"], SIZES["vision_vocab_size"])
    if isinstance(toy.get("image_grid_pinpoints"), list) and _is_size(vision.get("image_size")):
        shrunk = [
            [side * small["image_size"] // vision["image_size"] for side in one] for one in toy["image_grid_pinpoints"]
        ]
        toy["image_grid_pinpoints"] = [list(one) for one in dict.fromkeys(map(tuple, shrunk))]
    states = 1 + next((small[key] for key in COUNTS if _is_size(small.get(key))), 0)
    for key in ("vision_feature_layer", "vision_feature_layers"):
        if isinstance(toy.get(key), list):
            toy[key] = [layer % states if layer >= 0 else -(-layer - 1) % states - states for layer in toy[key]]
    if isinstance(toy.get("projector_patch_to_query_dict"), dict):
        patches = (small["image_size"] // small["patch_size"]) ** 2
        toy["projector_patch_to_query_dict"] = {patches: patches // 4}


def _parts(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the configs of the parts that a model is made of."""
    parts = {key: value for key, value in config.items() if is_part(key, value)}
    return {key: value for key, value in parts.items() if key not in DROPPED and key != BY_LAYER}


def _completed(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    missing = {key: value for key, value in COMPLETED.get(name, {}).items() if config.get(key) is None}
    return {**config, **missing}


def _role(key: str, part: Mapping[str, Any], parent: str) -> str:
    """Return the part of the model that a part of its config describes, by its name."""
    if "text" in key and "vocab_size" in part:  # of whatever model: glm_image_text
        return "text"
    name = f"{key} {part.get('model_type') or ''}"
    if any(word in name for word in ("vision", "visual", "vit", "image")):
        return "vision"
    if any(word in name for word in ("audio", "speech")):
        return "audio"
    return parent if "vocab_size" not in part else "text"


def _set_tower_sizes(toy: dict[str, Any], sizes: Mapping[str, int]) -> None:
    """Sizes of a vision or audio tower; what it passes on is as wide as the text model."""
    if "embed_dim" in toy and "mlp_ratio" in toy and _is_size(toy.get("hidden_size")):
        toy["hidden_size"] = HIDDEN  # here embed_dim is the tower's width, and hidden_size what it hands on
        sizes = {key: size for key, size in sizes.items() if key != "hidden_size"}
    if "image_size" not in toy:  # nothing depends on the patches' size, and training frameworks count on the real one
        sizes = {key: size for key, size in sizes.items() if key != "patch_size"}
    for key, size in {**sizes, **dict.fromkeys(TO_TEXT_WIDTH, HIDDEN)}.items():
        _set_size(toy, key, size)
    for key in INPUT_WIDTH:
        if key in toy:
            toy[key] = toy["hidden_size"]
    toy |= FIXED.get(str(toy.get("model_type")), {})
    if _is_size(toy.get("window_size")) and _is_size(toy.get("patch_size")):
        toy["window_size"] = 4 * toy["patch_size"]


def _set_text_sizes(toy: dict[str, Any], config: Mapping[str, Any]) -> None:
    for key, size in SIZES.items():
        _set_size(toy, key, size)
    for key, size in AT_MOST.items():
        if _is_size(toy.get(key)):
            toy[key] = min(toy[key], size)
    for key in ("num_key_value_heads", "num_kv_heads", "n_head_kv"):
        if config.get(key) == 1:
            toy[key] = 1
    if _is_size(toy.get("num_kv_heads")) and config["num_kv_heads"] == config.get("num_attention_heads"):
        toy["num_kv_heads"] = toy["num_attention_heads"]
    experts = config.get("n_routed_experts", 0) is None
    for key in OPEN:
        if key in toy and toy[key] is None and (experts or key != "n_shared_experts"):
            toy[key] = SIZES.get(key) or AT_MOST[key]
    if isinstance(rates := toy.get("compress_rates"), dict):  # a sequence shorter than the rate compresses to nothing
        toy["compress_rates"] = {kind: min(rate, 4 + 2 * index) for index, (kind, rate) in enumerate(rates.items())}
    if toy.get("model_type") in EVEN_HEADS:
        toy["num_key_value_heads"] = toy["num_attention_heads"]
    if toy.get("model_type") in SQUARE:
        toy["head_dim"] = HIDDEN // toy["num_attention_heads"]
    if "attention_hidden_size" in toy and "num_attention_heads" in toy:
        toy["attention_head_dim"] = toy["attention_hidden_size"] // toy["num_attention_heads"]
    if "d_head" in toy and "n_head" in toy:
        toy["d_head"] = HIDDEN // toy["n_head"]
    if "state_size" in toy and "num_heads" in toy:
        toy["num_heads"] = SIZES["mamba_n_heads"]


def _set_size(toy: dict[str, Any], key: str, size: int) -> None:
    """Set a size, or the sizes of parts that have one each: those that differ stay different."""
    value = toy.get(key)
    if _is_size(value):
        toy[key] = size
    elif isinstance(value, list) and all(_is_size(item) for item in value):
        kinds = list(dict.fromkeys(value))
        toy[key] = [size - 12 * kinds.index(item) for item in value]


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _fit_layers(toy: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Scale the settings of single layers in proportion to those of the others."""
    for own in (toy.get(BY_LAYER) or {}).values():
        nope, rope = own.get("qk_nope_head_dim"), config.get("qk_rope_head_dim")
        spans_head = nope is not None and rope is not None and config.get("head_dim") == nope + rope
        for key, value in own.items():
            if _is_size(value) and _is_size(toy.get(key)) and _is_size(config.get(key)):
                whole, rest = divmod(toy[key] * value, config[key])
                own[key] = toy[key] if rest else whole
        if spans_head:
            toy["head_dim"] = own["qk_nope_head_dim"] + toy["qk_rope_head_dim"]


def _fit_latent_attention(toy: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Multi-head latent attention has one key head for each query head, and sizes that follow from others."""
    if "qk_nope_head_dim" not in toy or "qk_rope_head_dim" not in toy:
        return
    if config.get("num_key_value_heads") == config.get("num_attention_heads"):
        toy["num_key_value_heads"] = toy["num_attention_heads"]
    whole = toy["qk_nope_head_dim"] + toy["qk_rope_head_dim"]
    if "qk_head_dim" in toy:
        toy["qk_head_dim"] = whole
    if config.get("head_dim") == config["qk_rope_head_dim"]:
        toy["head_dim"] = toy["qk_rope_head_dim"]
    elif config.get("head_dim") == config["qk_nope_head_dim"] + config["qk_rope_head_dim"]:
        toy["head_dim"] = whole
        for rope in _rope_dicts(toy.get("rope_parameters")):  # the part of a head that rotates has its own projection
            if rope.get("partial_rotary_factor") == config["qk_rope_head_dim"] / config["head_dim"]:
                rope["partial_rotary_factor"] = toy["qk_rope_head_dim"] / whole


def _fit_rope(toy: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Keep the kind of rope; lengths shrink with the context, factor lists with the rotary width."""
    shrunk = toy.get("max_position_embeddings", 1) / max(config.get("max_position_embeddings") or 1, 1)
    if toy.get("rope_parameters") == {}:  # a class that sets none by default reads those of each type of layer
        kinds = dict.fromkeys(toy.get("layer_types") or ())
        toy["rope_parameters"] = {kind: dict(_PLAIN_ROPE) for kind in kinds}
    if toy.get("rope_parameters") is None and toy.get("model_type") in THREE_AXES:
        toy["rope_parameters"] = dict(_PLAIN_ROPE)  # where its class would set it, and the sections are missing
    for rope in (*_rope_dicts(toy.get("rope_parameters")), toy):
        if int(_head_dim(toy) * (rope.get("partial_rotary_factor") or 1.0)) % 2:
            rope["partial_rotary_factor"] = 0.5
    for rope in _rope_dicts(toy.get("rope_parameters")):
        if original := rope.get("original_max_position_embeddings"):
            rope["original_max_position_embeddings"] = max(8, int(original * shrunk))
        share = rope.get("partial_rotary_factor") or toy.get("partial_rotary_factor") or 1.0
        pairs = int(_head_dim(toy) * share) // 2
        for key in ("short_factor", "long_factor"):
            if isinstance(rope.get(key), list):
                rope[key] = rope[key][:pairs]
        if isinstance(rope.get("mrope_section"), list) or toy.get("model_type") in THREE_AXES:
            axes = THREE_AXES.get(str(toy.get("model_type")), (2, 3, 3))
            rope["mrope_section"] = _sections(list(rope.get("mrope_section") or axes), pairs)
    if original := toy.get("original_max_position_embeddings"):
        toy["original_max_position_embeddings"] = max(8, int(original * shrunk))


def _rope_dicts(value: Any) -> Iterable[dict[str, Any]]:
    """Return the rope settings themselves: one dict, or one for each type of layer."""
    if not isinstance(value, dict):
        return []
    nested = [item for item in value.values() if isinstance(item, dict)]
    return nested or [value]


def _sections(sections: list[int], pairs: int) -> list[int]:
    """Sections of multimodal rope, in about the same proportion, that add up to `pairs`."""
    scaled = [max(1, pairs * part // sum(sections)) for part in sections]
    scaled[-1] += pairs - sum(scaled)
    return scaled


def _head_dim(toy: Mapping[str, Any]) -> int:
    if _is_size(toy.get("head_dim")):
        return int(toy["head_dim"])
    heads = toy.get("num_attention_heads")
    return HIDDEN // int(heads) if _is_size(heads) and heads else HEAD_DIM


def _silence(toy: dict[str, Any]) -> None:
    """Nothing random in a forward pass; the router's logits are asked for, so that its loss is compared too."""
    for key, value in toy.items():
        if isinstance(value, float) and key.endswith(NOISE):
            toy[key] = 0.0
    if toy.get("use_mamba_kernels"):  # they run on GPUs alone, and compute what the code beside them does
        toy["use_mamba_kernels"] = False
    if "enable_audio_output" in toy:  # speech is made by models of their own; what is trained is the part that thinks
        toy["enable_audio_output"] = False
    routed = toy.get("is_moe", True) and toy.get("model_type") not in NO_ROUTER_LOSS
    if "output_router_logits" in toy and routed:
        toy["output_router_logits"] = True
