"""Other toys of the same model: what one config cannot show, because a value stands at its default or is off."""

import copy
from collections.abc import Collection, Iterator, Mapping
from typing import Any

TIED = "tie_word_embeddings"
_ROPE = "rope_parameters"
_MOVED, _EPS = 1.25, 0.03
_GIVEN = 0.5  # where nothing is by default: small, so that a cap or a clip cuts what toys compute
# Floats that are chance, or shares of a width that has to stay even.
_KEPT = ("dropout", "init", "jitter", "noise", "partial", "drop_", "pdrop")
# Switches of how a model is called, not of what it computes; scenarios call it so.
_OF_CALLS = ("output_", "return_", "use_cache", "is_decoder", "is_encoder", "torchscript", "use_return")
_OWN = "model_type"  # what a config within a config has, and a mere group of settings has not
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "moe_k", "moe_topk", "num_experts_per_token", "top_k_experts")
_LAYERS = "num_hidden_layers"
_MANY = 12  # the first number whose name comes before those of smaller ones
_HEAD_DIM, _WIDER = "head_dim", 8
_SHORT = 8  # positions that a model with scaled positions is said to have been trained on
_SCALED: Mapping[str, Mapping[str, Any]] = {
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0, "original_max_position_embeddings": _SHORT},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": _SHORT},
    "llama3": {
        "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": _SHORT,
    },
}  # fmt: skip


def variants(
    toy: Mapping[str, Any], read: Collection[str], floats: Collection[str] = (), spoken: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name -> a config that differs from the toy's in one respect; upstream may refuse some of them.

    Configs within it, those of a text model or of a tower, are varied likewise, each by itself.

    Args:
        toy: the complete config of a toy.
        read: the names that upstream's modeling code asks its config for, and `TIED` where it has something to tie.
        floats: the names of the config that a float may be given to.
        spoken: the one config within it that the model is asked by; empty where it is asked as a whole.
    """
    yield "no number at its default", _moved(toy)
    yield from _differing(toy, read, floats, spoken)


def _differing(
    toy: Mapping[str, Any], read: Collection[str], floats: Collection[str], spoken: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from _of_one(toy, read, floats)
    for name, part in toy.items():
        if isinstance(part, Mapping) and _OWN in part and spoken in ("", name):
            # A switch that the whole has, too, is turned with it.
            own = {key: value for key, value in part.items() if not isinstance(toy.get(key), bool)}
            for what, made in _differing(own, read, floats):
                yield f"{name}: {what}", {**copy.deepcopy(dict(toy)), name: {**copy.deepcopy(dict(part)), **made}}


def _of_one(
    toy: Mapping[str, Any], read: Collection[str], floats: Collection[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from _many(toy)
    for key in sorted(read):
        if isinstance(toy.get(key), bool) and not key.startswith(_OF_CALLS):
            yield f"{key}={not toy[key]}", _turned(toy, key)
    for key in sorted({*read}.intersection(floats)):
        if key in toy and toy[key] is None and not any(word in key for word in _KEPT):
            yield f"{key}={_GIVEN}", {**copy.deepcopy(dict(toy)), key: _GIVEN}
    for key in _CHOSEN:
        if isinstance(toy.get(key), int) and toy[key] + 1 < max(_counts(toy), default=0):
            yield f"{key}={toy[key] + 1}", {**copy.deepcopy(dict(toy)), key: toy[key] + 1}
    if _HEAD_DIM in read and isinstance(toy.get(_HEAD_DIM), int):
        width = toy[_HEAD_DIM] + _WIDER
        yield f"{_HEAD_DIM}={width}", {**copy.deepcopy(dict(toy)), _HEAD_DIM: width}
    yield from _positions(toy)


def _turned(toy: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A switch the other way round, in the parts that say the same of themselves, too."""
    made = copy.deepcopy(dict(toy))
    for config in (made, *(part for part in made.values() if isinstance(part, dict))):
        if config.get(key) is toy[key]:
            config[key] = not toy[key]
    return made


def _moved(value: Any, key: str = "") -> Any:
    """Every float moved away from what everybody has."""
    if isinstance(value, Mapping):
        return {name: _moved(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_moved(one, key) for one in value]
    if not isinstance(value, float) or any(word in key for word in _KEPT):
        return value
    return _EPS if "eps" in key else value * _MOVED


def _counts(toy: Mapping[str, Any]) -> list[int]:
    return [toy[name] for name in _EXPERTS if isinstance(toy.get(name), int)]


def _many(toy: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """More layers and experts than have names of one digit."""
    layers = toy.get(_LAYERS)
    if not isinstance(layers, int) or layers >= _MANY:
        return
    made = copy.deepcopy(dict(toy))
    for key, value in made.items():
        if "layer" in key and isinstance(value, list) and len(value) == layers:  # one entry a layer
            made[key] = (value * _MANY)[: _MANY - 1] + value[-1:]
    made |= {_LAYERS: _MANY} | {
        name: _MANY for name in _EXPERTS if isinstance(toy.get(name), int) and toy[name] < _MANY
    }
    yield f"{_MANY} layers" + (f" and {_MANY} experts" if _counts(toy) else ""), made


def _positions(toy: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The ways of scaling positions, where the model rotates them all in one way."""
    rope = toy.get(_ROPE)
    if isinstance(rope, Mapping) and "rope_theta" in rope and rope.get("rope_type", "default") == "default":
        for name, scaled in _SCALED.items():
            yield f"rope {name}", {**copy.deepcopy(dict(toy)), _ROPE: {**rope, "rope_type": name, **scaled}}
