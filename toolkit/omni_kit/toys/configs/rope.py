"""The kinds of RoPE scaling, by the parameters that each function of the library reads."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

ROPE, PARTIAL = "rope_parameters", "partial_rotary_factor"
_TYPE, _THETA, _PLAIN = "rope_type", "rope_theta", "default"
_SHORT = 8  # positions that a model with scaled positions is said to have been trained on
# What a function may read -> a value that makes a difference; lists are as long as there are pairs of channels.
_VALUES: Mapping[str, Any] = {
    "factor": 4.0,
    "original_max_position_embeddings": _SHORT,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "short_factor": 1.5,
    "long_factor": 3.0,
    "mscale": 0.7,
    "mscale_all_dim": 0.8,
}
_LISTS = ("short_factor", "long_factor")


def scaled(toy: Mapping[str, Any], rules: Mapping[str, Collection[str]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name -> the rope settings of a toy with another type, for each that the library knows.

    Args:
        rules: type -> the parameters that its function reads.
    """
    rope = toy.get(ROPE)
    if not isinstance(rope, Mapping):
        return
    if _THETA in rope:
        yield from ((f"rope {name}", made) for name, made in _others(rope, toy, rules))
        return
    for kind, own in rope.items():  # settings of their own for each kind of layers
        if isinstance(own, Mapping) and _THETA in own:
            for name, made in _others(own, toy, rules):
                yield f"rope {name} of {kind}", {**rope, kind: made}


def _others(
    rope: Mapping[str, Any], toy: Mapping[str, Any], rules: Mapping[str, Collection[str]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    now = rope.get(_TYPE, _PLAIN)
    plain = {key: value for key, value in rope.items() if key not in _VALUES}
    if now != _PLAIN:
        yield _PLAIN, {**plain, _TYPE: _PLAIN}
    # The first is part of every field at once: that which reads the most parameters has the most effects.
    for name, read in sorted(rules.items(), key=lambda rule: -len(rule[1])):
        if name != now:
            yield name, {**plain, _TYPE: name, **{key: _value(key, rope, toy) for key in _VALUES if key in read}}
    if PARTIAL in rope or any(PARTIAL in read for read in rules.values()):
        share = 0.5 if rope.get(PARTIAL, 1.0) != 0.5 else 0.75
        yield f"{PARTIAL} {share}", {**rope, PARTIAL: share}


def _value(key: str, rope: Mapping[str, Any], toy: Mapping[str, Any]) -> Any:
    if key not in _LISTS:
        return _VALUES[key]
    width = toy.get("qk_rope_head_dim") or toy.get("head_dim")
    width = width or toy.get("hidden_size", 0) // max(toy.get("num_attention_heads") or 1, 1)
    pairs = int(width * (rope.get(PARTIAL) or 1.0)) // 2
    return [_VALUES[key] + 0.125 * number for number in range(pairs)]
