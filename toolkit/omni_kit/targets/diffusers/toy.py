"""A small config of a model that has none yet, from what its constructor takes by default."""

import re
from collections.abc import Mapping
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.toys.configs.denoiser import toy_denoiser
from omni_kit.upstream.diffusers.signatures import Argument

# What authors call the width of the whole, and other widths, in the words that toys are made by.
_WHOLE = re.compile(
    r"^(width|embed_?dim|hidden_?(dim|width)|n_embd|model_?(width|channels)|emb_?dim|channels|inner_dim)$"
)
_WIDTHS = re.compile(r"_(width|features)$")
_ANY_WIDTH = 512  # for what has no default: toys shrink it by its name
# Sizes that authors leave to a config, and that no model is without.
_NEVER_NONE: Mapping[str, int] = {
    "in_channels": 4,
    "patch_size": 2,
    "sample_size": 8,
    "sample_size_t": 3,
    "patch_size_t": 1,
}
_IS_PLACE = re.compile(r"[$/\\]|\.(pt|pth|bin|ckpt|safetensors)$")
_TYPES: Mapping[str, Any] = {"int": _ANY_WIDTH, "bool": False, "float": 1.0}


def toy_of(arguments: Mapping[str, Argument], published: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A toy's arguments, and the names of those for which nothing was known.

    Args:
        published: values from a config of the authors, which come before defaults.
    """
    aliases = _aliases(list(arguments))
    given, unknown = {}, []
    for name, one in arguments.items():
        value = published[name] if _fits(published.get(name), one) else _value(one)
        if value is UNKNOWN:
            unknown += [name] if one.required else []
        else:
            given[aliases[name]] = value
    given |= {name: value for name, value in _NEVER_NONE.items() if name in given and given[name] is None}
    small = toy_denoiser(given)
    return {name: _plain(small[alias]) for name, alias in aliases.items() if alias in small}, unknown


def _aliases(names: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        alias = "hidden_size" if _WHOLE.match(name) else _WIDTHS.sub("_dim", name)
        taken = alias in names or alias in found.values()
        found[name] = name if taken else alias
    return found


def _value(one: Argument) -> Any:
    if one.default is not UNKNOWN:
        return one.default
    if one.required and one.annotation.lower().startswith(("list", "tuple", "sequence")):
        return None  # toys know some of them by their names
    if one.required and one.annotation in ("", *_TYPES):
        return _TYPES.get(one.annotation, _ANY_WIDTH)
    return UNKNOWN


def _fits(value: Any, one: Argument) -> bool:
    """Whether a published value is of the kind that an argument is: no text for a number, no reference, and no file."""
    if value is None or (isinstance(value, str) and _IS_PLACE.search(value)):
        return False
    if one.default is UNKNOWN or one.default is None:
        return one.default is None or one.required
    numbers = isinstance(value, int | float) and isinstance(one.default, int | float)
    alike = isinstance(value, list | tuple) and isinstance(one.default, list | tuple)
    return alike or (
        isinstance(value, bool) == isinstance(one.default, bool) and (numbers or type(value) is type(one.default))
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
