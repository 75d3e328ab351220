"""Derives a toy config of a diffusion transformer from a real one: small, legal, and with no two dimensions alike.

diffusers has no config classes: a config is the arguments of a model's constructor. So the rules go by their names.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any

from omni_kit.toys.configs.axes import IS_AXES, fit_axes
from omni_kit.toys.configs.latents import fit_channels

HEADS, HEAD_DIM = 4, 20  # heads divide by 4, so that a toy can be spread; a width of 20 has rope axes of two sizes
INNER = HEADS * HEAD_DIM
_SECOND = "audio_"  # what a second stream's arguments begin with; its heads have another width
_SECOND_HEAD_DIM = 12
_FEW_HEADS = 2
_EIGHTHS = 16  # a head of which rope takes eighths, without saying so in its arguments
_PATCH = 2
_LAYERS = 2
_SECOND_TEXT = 26
_PYRAMID, _PYRAMID_SIZES = 12, (4, 8, 16)  # channels of an encoder that halves pictures

# Every value differs from every other, from the inner width, and from a patch of latent channels.
SIZES: Mapping[str, int] = {
    "attention_head_dim": HEAD_DIM,
    "ffn_dim": 112,
    "freq_dim": 32,
    "time_embed_dim": 36,
    "text_dim": 28,
    "text_embed_dim": 40,  # divides by 8, the heads of some poolings
    "joint_attention_dim": 28,
    "caption_channels": 28,
    "cross_attention_dim": 28,
    "pooled_projection_dim": 44,
    "image_dim": 52,
    "added_kv_proj_dim": INNER,
    "caption_projection_dim": INNER,
    "norm_num_groups": 2,  # divides every number of channels here
    "multiple_of": 24,
}
# For all other widths, in the order of the arguments; eighths, as poolings have eight heads. Without INNER and ffn_dim.
_WIDTHS = (56, 64, 72, 88, 96, 104)
_MORE_WIDTHS = 120
_EIGHT = 8
# Widths of the whole: as wide as the heads are together.
WHOLE = ("hidden_size", "dim", "d_model", "model_dim")
# Room for positions: never more than these, which the small inputs do not fill. A square, as some take its root.
AT_MOST: Mapping[str, int] = {
    "rope_max_seq_len": 64,
    "pos_embed_max_size": 36,
    "sample_size": 16,
    "sample_height": 12,
    "sample_width": 14,
    "sample_frames": 9,
    "num_embeddings": 13,
    "max_text_seq_length": 9,
    "text_len": 9,
    "text_len_t5": 5,
    "video_length": 3,
    "vocab_size": 72,
    "pad_token_id": 0,
    "multiple_of": 24,
    "layers_per_block": 1,
    "motion_encoder_size": 16,
    "target_size": 64,
}
_ROOM, _POSITIONS = "pos_embed_max_size", "num_patches"  # rows for which there are positions, and how many those are
# How large pictures are, as authors call it: a model may have positions for that size alone.
IS_SIDE = re.compile(r"^(input|img|image|im|latent)_(size|resolution)$|^resolution$")
IS_ROWS, IS_COLUMNS = (
    re.compile(
        rf"^(input|img|image|im|latents?|frame|video|sample|grid)_({short}|{long})$|^{long}$|^(n_|num_)?({counted})$"
    )
    for short, long, counted in (("h", "height", "rows"), ("w", "width", "cols|columns"))
)
# Of those, what says how high a picture is, and where nothing says how wide, both.
IS_HEIGHT = re.compile(r"^(input|img|image|im|latents?|frame|video|sample)_h(eight)?$")
_SIDE = 4  # in patches
_WIDER = 2  # columns, of rows, where both are said
# How many words a text has, or how many frames a film, where a model has parameters for so many.
IS_TEXT_LENGTH = re.compile(
    r"^(num_(clip|text|txt|cond|context)_tokens?|token_num|model_max_length|max_(seq|text)_len"
    r"|(text|txt|clip)_(ctx|len|length|ctx_len))$"
)
_TEXT_LENGTH, _FRAMES = 9, 3
IS_LAYERS = re.compile(r"(layers|depths?|(^|_)blocks|num_scale|n_layer)$")
IS_HEADS = re.compile(r"(^|_)(num|n)(_\w+)?_heads?$|^(n?heads|nhead)(_num)?$|_heads$")
_IS_FEW_HEADS = re.compile(r"(kv|key_value)(_\w+)?_heads$")
_IS_HEAD_DIM = re.compile(r"(head_dim|dim_head|d_kv)$")
IS_HEAD_CHANNELS = re.compile(r"head_channels$|channels_per_head$")
_IS_WIDTH = re.compile(r"(^|_)(dims?\d?|channels|ff|size|querie|token)(_\w+)?$")
_IS_SIZE = re.compile(r"_size$")
_IS_NO_WIDTH = re.compile(r"patch|sample|scale|every|batch|mult|target_size|max_size|base_|num_groups|pos_embed|kernel")
_IS_PATCH = re.compile(r"^patch(_size)?$")
_LARGEST_PATCH = 4
_MOST_COLOURS = 3  # channels of a sound or of a picture
_IS_WIDTH_OF_PATCHES = re.compile(r"^patch_\w+_dim$")
_WIDE = 64  # no patch is as large
_IS_MULTIPLIERS, _MOST_TIMES = re.compile(r"mult(s|ipliers?)?$"), 2
_IS_WIDTHS = re.compile(r"(channels|widths|dims|features)$")
_IS_AXES_COUNT = re.compile(r"dims?$")
_MOST_AXES = 3
_IS_LAYERS_OF_TEXT = re.compile(r"^(llama|text)\w*_layers$")


def constructor_defaults(model_class: Any) -> dict[str, Any]:
    """Return the arguments of a constructor, which diffusers writes down as its config; None for those without a
    default.
    """
    parameters = list(inspect.signature(model_class.__init__).parameters.values())[1:]
    named = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return {one.name: None if one.default is one.empty else one.default for one in named}


def toy_denoiser(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a toy of a complete config: two blocks of each kind, small dimensions that all differ, no dropout.

    Args:
        config: every argument of the model's constructor, defaults included.

    Returns:
        A new dict. What is a decision and no size (norms, biases, patches, what is embedded) stays as it is; channels
        that are equal, or packed patches of each other, stay so, because predictions are compared with latents. Sizes
        that have no default are given, and so is a text to a model that may have one; parts that it may have
        (`has_...`) are there.
    """
    toy = dict(config)
    free = chain(_WIDTHS, count(_MORE_WIDTHS, _EIGHT))
    for key, value in config.items():
        toy[key] = _shrunk(key, value, free)
    _fit_none(toy)
    _fit_levels(toy, config)
    _fit_heads(toy, config)
    fit_channels(toy, config, _SECOND)
    _fit_widths(toy, config)
    _fit_sides(toy)
    _fit_layers_of_text(toy)
    if "time_position_encoding_type" in toy:
        toy["attention_head_dim"] = _EIGHTHS
    fit_axes(toy, config, HEAD_DIM)
    return toy


def as_wide(values: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Return a toy with another width of the whole, and heads that make it up."""
    widths = {INNER: width, HEAD_DIM: width // HEADS}
    return {name: value if isinstance(value, bool) or not isinstance(value, int) else widths.get(value, value)
            for name, value in values.items()}  # fmt: skip


def _shrunk(key: str, value: Any, free: Iterator[int]) -> Any:
    """Return one argument by itself; relations between arguments come later."""
    if key.endswith(("dropout", "dropout_rate")):
        return 0.0
    if key.endswith("layers") and isinstance(value, (list, tuple)):  # numbers of layers that differ from the others
        return type(value)(layer for layer in value if layer < _LAYERS)
    if key.endswith("max_resolution") and isinstance(value, (list, tuple)):
        return type(value)(min(side, AT_MOST["sample_size"]) for side in value)
    if isinstance(value, (list, tuple)) and value and all(type(one) is int for one in value):
        return type(value)(_shrunk_levels(key, value))
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        return value
    if value <= _MOST_AXES and _IS_AXES_COUNT.search(key):  # 1-D, 2-D or 3-D convolutions
        return value
    rule = next((rule for matches, rule in _RULES if matches(key)), None)
    return value if rule is None else rule(key, value, free)


def _shrunk_levels(key: str, value: Sequence[int]) -> Sequence[int]:
    """Widths of a U-Net's levels, or how many times the first is wide: narrow, and at most twice as wide as that.

    Of the parts of a model that have each their own width, heads and blocks: those of a small one.
    """
    if key in WHOLE:
        return [INNER if one == value[0] else HEADS * _SECOND_HEAD_DIM for one in value]
    if IS_HEADS.search(key) or IS_LAYERS.search(key):
        return [min(one, HEADS if IS_HEADS.search(key) else _LAYERS) for one in value]
    if _IS_MULTIPLIERS.search(key):
        return [min(one, _MOST_TIMES) for one in value]
    if _are_widths(key, value):
        return _narrow(value, min(value))
    return value


def _are_widths(key: str, value: Any) -> bool:
    """Return whether a list has the widths of levels."""
    plain = isinstance(value, (list, tuple)) and bool(value) and all(type(one) is int for one in value)
    other = any(one.search(key) for one in (IS_HEADS, IS_LAYERS, _IS_MULTIPLIERS, IS_AXES)) or key in WHOLE
    return plain and not other and _IS_WIDTHS.search(key) is not None and min(value) >= _WIDE


def _narrow(widths: Sequence[int], least: int) -> list[int]:
    return [_WIDE * min(one // least, _MOST_TIMES) for one in widths]


_Rule = Callable[[str, int, Iterator[int]], int]
# The first whose test a name passes.
_RULES: Sequence[tuple[Callable[[str], Any], _Rule]] = (
    (AT_MOST.__contains__, lambda key, value, free: min(value, AT_MOST[key])),
    (IS_TEXT_LENGTH.search, lambda key, value, free: min(value, _TEXT_LENGTH)),
    ("num_frames".__eq__, lambda key, value, free: min(value, _FRAMES)),
    (IS_LAYERS.search, lambda key, value, free: _LAYERS),
    (_IS_FEW_HEADS.search, lambda key, value, free: _FEW_HEADS),
    (IS_HEADS.search, lambda key, value, free: HEADS),
    (IS_HEAD_CHANNELS.search, lambda key, value, free: _EIGHT),  # of a U-Net: every width divides by it
    (_IS_HEAD_DIM.search, lambda key, value, free: _SECOND_HEAD_DIM if key.startswith(_SECOND) else HEAD_DIM),
    (SIZES.__contains__, lambda key, value, free: SIZES[key]),
    (WHOLE.__contains__, lambda key, value, free: INNER),
    (_IS_WIDTH_OF_PATCHES.search, lambda key, value, free: next(free) if value >= _WIDE else value),
    (_IS_PATCH.search, lambda key, value, free: min(value, _LARGEST_PATCH)),
    (_IS_NO_WIDTH.search, lambda key, value, free: value),
    (_IS_SIZE.search, lambda key, value, free: next(free) if value >= _EIGHT else value),  # few are a number of things
    (_IS_WIDTH.search, lambda key, value, free: next(free) if value > _MOST_COLOURS else value),
)


def _fit_none(toy: dict[str, Any]) -> None:
    """Sizes that have no default and that no such model is without."""
    if "patch_size" in toy and toy["patch_size"] is None and "num_vector_embeds" not in toy:
        toy["patch_size"] = _PATCH
    if toy.get(_ROOM, 0) is None and toy.get(_POSITIONS, 0) is None:  # authors take both from a checkpoint
        toy |= {_ROOM: AT_MOST[_ROOM], _POSITIONS: AT_MOST[_ROOM] ** 2}
    texts = "caption_channels", "cross_attention_dim"
    if all(key in toy and toy[key] is None for key in texts):
        toy |= {key: SIZES[key] for key in texts}
    for key in (key for key, value in toy.items() if value is None):
        if IS_AXES.search(key):
            toy[key] = [HEAD_DIM // 2] * 2  # rows and columns
        elif key.endswith("_channel_sizes"):
            toy[key] = {str(size): _PYRAMID for size in _PYRAMID_SIZES}
        elif key == "rope_scaling" and "original_max_position_embeddings" in toy:  # one factor up to there, one beyond
            toy[key] = {"short_factor": [], "long_factor": []}
    for key in (key for key, value in toy.items() if key.startswith("has_") and value is False):
        toy[key] = True  # what a model may have is proven only where the toy has it; some forwards need it
    if isinstance(toy.get("rope_scaling"), dict):
        toy["rope_scaling"] = {key: _factors(key, value) for key, value in toy["rope_scaling"].items()}


def _factors(key: str, value: Any) -> Any:
    """Return a factor for each pair of a head, where there is one for each."""
    first = 1.0 if key.startswith("short") else 1.5
    return [first + step / HEAD_DIM for step in range(HEAD_DIM // 2)] if isinstance(value, list) else value


def _fit_levels(toy: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Lists of widths that have some in common stay equal there: those of the middle begin with the last level's."""
    lists = {key: value for key, value in config.items() if _are_widths(key, value)}
    shared = [key for key, value in lists.items()
              if any({*value} & {*other} for name, other in lists.items() if name != key)]  # fmt: skip
    least = min((min(lists[key]) for key in shared), default=0)
    for key in shared:
        toy[key] = type(lists[key])(_narrow(lists[key], least))


def _fit_heads(toy: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Keys and values have as many heads as queries where they do in reality."""
    every = [key for key in config if IS_HEADS.search(key) and not _IS_FEW_HEADS.search(key)]
    for key in (key for key in config if _IS_FEW_HEADS.search(key)):
        if config[key] in (None, *(config[one] for one in every)):
            toy[key] = HEADS


def _fit_widths(toy: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Widths that follow from others."""
    for second in ("", _SECOND):
        if toy.get("caption_channels") and toy.get(f"{second}cross_attention_dim"):
            # Captions are projected to the width of the whole before the blocks look at them.
            toy[f"{second}cross_attention_dim"] = HEADS * (_SECOND_HEAD_DIM if second else HEAD_DIM)


def _fit_sides(toy: dict[str, Any]) -> None:
    """Pictures are a few patches high and wide, and a U-Net can halve them on each of its levels."""
    patch = toy.get("patch_size")
    patch = patch[-1] if isinstance(patch, (list, tuple)) and patch else patch
    halved = max((len(value) - 1 for key, value in toy.items()
                  if _IS_MULTIPLIERS.search(key) and isinstance(value, (list, tuple))), default=0)  # fmt: skip
    side = max(_SIDE * (patch if isinstance(patch, int) else _PATCH), 2**halved)
    apart = all(any(map(one.search, toy)) for one in (IS_ROWS, IS_COLUMNS))
    for key, value in toy.items():
        if (IS_SIDE.search(key) or (not apart and IS_HEIGHT.search(key))) and value:
            toy[key] = type(value)([side] * len(value)) if isinstance(value, (list, tuple)) else side
        elif apart and (IS_ROWS.search(key) or IS_COLUMNS.search(key)) and value:
            toy[key] = side * (1 if IS_ROWS.search(key) else _WIDER)


def _fit_layers_of_text(toy: dict[str, Any]) -> None:
    """Give each block its own layer of a text encoder: as many as blocks, and captions of two widths."""
    counts = (value for key, value in toy.items() if key.startswith("num_") and IS_LAYERS.search(key))
    blocks = sum(one for one in counts if isinstance(one, int))
    for key in (key for key, value in toy.items() if _IS_LAYERS_OF_TEXT.search(key) and not isinstance(value, int)):
        toy[key] = list(range(blocks))
        toy["caption_channels"] = [SIZES["caption_channels"], _SECOND_TEXT]
