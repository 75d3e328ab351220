"""What an argument of a forward may be, by its name: for each role the likeliest first."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from omni_kit.toys.feeds.denoiser.sizes import PICTURES, Sizes
from omni_kit.toys.tensors import Tensors

# Makes an argument of a sample: tensors under what comes after the argument's name ("" for the argument itself).
Option = Callable[[Sizes], Tensors]
_MASKED = (2, -1)  # a mask need not be a suffix
# Of a thousand steps. Exact in bfloat16 as they are and as sigmas, so that what is lost there is the model's.
_TIMESTEPS = (250, 812)
_SIGMAS = (0.25, 0.8125)
_GUIDANCE = (3.5, 5.0)
_THETA = 100.0


@dataclass(frozen=True)
class Argument:
    """An argument of a forward.

    Attributes:
        annotation: as written.
        required: it has no default.
        sigmas: times are given as parts of one, not of a thousand.
    """

    name: str
    annotation: str
    required: bool
    sigmas: bool


def options(argument: Argument, sizes: Sizes) -> list[Option] | None:
    """What an argument may be; None where it is no data: switches, residuals of other models, caches."""
    for pattern, make in _ROLES:
        if pattern.search(argument.name):
            return None if make is None else list(make(argument, sizes))
    return list(_embedding(argument, sizes))


def _whole(make: Callable[[Sizes], torch.Tensor]) -> Option:
    return lambda sizes: {"": make(sizes)}


def _time(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    def scalar(sizes: Sizes) -> torch.Tensor:
        return torch.tensor([_SIGMAS[sizes.index] if argument.sigmas else _TIMESTEPS[sizes.index]])

    yield _whole(scalar)
    yield _whole(lambda sizes: scalar(sizes).float())
    yield _whole(lambda sizes: scalar(sizes).repeat(sizes.grid[0]))
    yield _whole(lambda sizes: scalar(sizes).reshape(1, 1).repeat(1, sizes.grid[0]))
    yield _whole(lambda sizes: scalar(sizes).reshape(1, 1).repeat(1, sizes.tokens))
    yield _whole(lambda sizes: scalar(sizes)[0])


def _guidance(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    yield _whole(lambda sizes: torch.tensor([_GUIDANCE[sizes.index]]))


def _embedding(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Embeddings: texts of a length, or one vector; lists of them, one for each block or alone."""
    name, widths = argument.name, near(argument.name, sizes)
    lists = [_text_in_list(name, width, each) for each in (False, True) for width in widths]
    texts = [_text(name, width) for width in widths]
    vectors = [_whole(lambda sizes, w=width: sizes.values(name, (1, w))) for width in widths]  # type: ignore[misc]
    stacks = [_whole(lambda sizes, w=width: sizes.values(name, (sizes.blocks, 1, sizes.text(name), w))) for width in widths]  # type: ignore[misc]
    fixed = [
        _whole(lambda sizes, w=width, n=length: sizes.values(name, (1, n, w)))  # type: ignore[misc]
        for length in lengths(sizes)
        for width in widths
    ]
    extra = [_whole(lambda sizes, w=width: sizes.values(name, (1, 2, sizes.text(name), w))) for width in widths]  # type: ignore[misc]
    if "list" in argument.annotation.lower():
        yield from lists
    if _POOLED.search(name):
        yield from vectors
    yield from texts
    yield from vectors
    yield from fixed
    yield from stacks
    yield from extra
    yield from lists


_POOLED = re.compile(r"pool|global|proj_embedding|style|timestep_cond")


def _text(name: str, width: int) -> Option:
    return _whole(lambda sizes: sizes.values(name, (1, sizes.text(name), width)))


def _text_in_list(name: str, width: int, each: bool) -> Option:
    """A list of texts, one for each block; or of the one text of a batch of one, without its batch."""

    def made(sizes: Sizes) -> Tensors:
        if not each:
            return {"[0]": sizes.values(name, (sizes.text(name), width))}
        shape = (1, sizes.text(name), width)
        return {f"[{block}]": sizes.values(f"{name} {block}", shape) for block in range(sizes.blocks)}

    return made


def near(name: str, sizes: Sizes) -> list[int]:
    """Widths that an argument may have: of the arguments of the constructor that are called like it, then all."""
    words = _words(name)
    named = [(key, value) for key, value in sizes.config.items() if isinstance(value, int) and not isinstance(value, bool)]
    named += [(key, one) for key, value in sizes.config.items() if isinstance(value, (list, tuple)) and "channels" in key for one in value if isinstance(one, int)]
    ranked = sorted(named, key=lambda item: -len(words & _words(item[0])))
    close = [value for key, value in ranked if words & _words(key) and value > 2]
    return list(dict.fromkeys([*close, *sizes.widths]))


def _words(name: str) -> frozenset[str]:
    name = re.sub(r"encoder_hidden_states|caption|cap|context|joint_attention|cross_attention|txt|encodings", "text", name)
    name = re.sub(r"image|img|clip|vit", "image", name)
    name = re.sub(r"pooled?|global", "pooled", name)
    return frozenset(word for word in re.split(r"_|(?<=\D)(?=\d)", name) if word not in _EMPTY)


_EMPTY = {"dim", "channels", "hidden", "states", "embeds", "embed", "size", "num", "in", "out"}


def lengths(sizes: Sizes) -> list[int]:
    """Lengths that a config sets for sequences."""
    found = [v for k, v in sizes.config.items() if re.search(r"len|num_tokens|_length|num_embeddings", k) and isinstance(v, int)]
    return list(dict.fromkeys(found))


def _mask(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Masks over a text, over patches, over both; of bools, whole numbers and floats; and over the latents' places."""
    name = argument.name
    spans: list[Callable[[Sizes], int]] = [
        lambda sizes: sizes.text(name),
        lambda sizes: sizes.tokens,
        lambda sizes: sizes.text(name) + sizes.tokens,
        lambda sizes: sizes.text(name) + sizes.tokens + 1,
        *[lambda sizes, n=length: n for length in lengths(sizes)],  # type: ignore[misc]
    ]
    kinds = [torch.bool, torch.long, torch.float32, torch.int32]
    for span, kind in product(spans, kinds):
        yield _whole(lambda sizes, span=span, kind=kind: _masked((1, span(sizes))).to(kind))  # type: ignore[misc]
    for kind in kinds:
        yield _whole(lambda sizes, kind=kind: _masked((1, 1, *sizes.latents[1:])).to(kind))  # type: ignore[misc]
        yield _whole(lambda sizes, kind=kind: _masked((1, 1, *sizes.latents)).to(kind))  # type: ignore[misc]
        yield _whole(lambda sizes, kind=kind: _masked((1, *sizes.latents)).to(kind))  # type: ignore[misc]
    for span, kind in product(spans, kinds):
        yield _whole(lambda sizes, span=span, kind=kind: _masked((1, span(sizes), span(sizes))).to(kind))  # type: ignore[misc]


def _masked(shape: Sequence[int]) -> torch.Tensor:
    mask = torch.ones(*shape, dtype=torch.bool)
    mask[..., _MASKED] = False
    return mask


def _ids(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Positions of patches or of words, one row for each; then plain positions of a whole sequence."""
    name = argument.name
    axes = next((len(v) for k, v in sizes.config.items() if "axes" in k or k == "rope_dim" if isinstance(v, (list, tuple))), 3)
    place = _word_ids if re.search(r"txt|text", name) else _patch_ids
    for count in dict.fromkeys((axes, 3, 4, 2, 1)):
        yield _whole(lambda sizes, n=count: place(sizes, n))  # type: ignore[misc]
        yield _whole(lambda sizes, n=count: place(sizes, n)[None])  # type: ignore[misc]
    yield from _indices(argument, sizes)


def _patch_ids(sizes: Sizes, axes: int) -> torch.Tensor:
    spans = [torch.arange(size) for size in (1, *sizes.grid)[-axes:]]
    grid = torch.stack(torch.meshgrid(*spans, indexing="ij"), dim=-1).reshape(-1, min(axes, 4))
    return grid.float()


def _word_ids(sizes: Sizes, axes: int) -> torch.Tensor:
    ids = torch.zeros(sizes.text("text"), axes)
    ids[:, 0] = ids[:, -1] = torch.arange(len(ids))
    return ids


def _indices(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Positions of frames, of patches, of words, and of all of them together."""
    name = argument.name
    spans: list[Callable[[Sizes], int]] = [
        lambda sizes: sizes.grid[0],
        lambda sizes: sizes.text(name),
        lambda sizes: sizes.tokens,
        lambda sizes: sizes.text(name) + 1 + sizes.tokens,
        lambda sizes: sizes.text(name) + sizes.tokens,
        lambda sizes: 1,
        lambda sizes: 2 * sizes.grid[0],
        lambda sizes: 4 * sizes.grid[0],
    ]
    for span in spans:
        yield _whole(lambda sizes, span=span: torch.arange(span(sizes))[None])  # type: ignore[misc]
        yield _whole(lambda sizes, span=span: torch.arange(span(sizes)))  # type: ignore[misc]
    yield _axes_of_positions


def _axes_of_positions(sizes: Sizes) -> Tensors:
    return {f"({axis})": torch.arange(size) for axis, size in enumerate(sizes.grid)}


def _tokens(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Numbers of words, one for each place of a text or of the patches."""
    name = argument.name
    spans: list[Callable[[Sizes], int]] = [lambda sizes: sizes.text(name), lambda sizes: sizes.tokens]
    for span in spans:
        yield _whole(lambda sizes, span=span: 1 + torch.arange(span(sizes))[None])  # type: ignore[misc]


def _label(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    yield _whole(lambda sizes: torch.tensor([sizes.index]))


def _drop(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    yield _whole(lambda sizes: ~_masked((1, sizes.tokens)))
    yield _whole(lambda sizes: torch.zeros(1, dtype=torch.bool))


def _pair(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Rows and columns, or six of such numbers."""
    def rows_columns(sizes: Sizes) -> torch.Tensor:
        salt = len(argument.name)
        return torch.tensor([[8.0 * size + salt for size in sizes.grid[1:]]])

    yield _whole(rows_columns)
    yield _whole(lambda sizes: torch.cat([rows_columns(sizes) + step for step in range(3)], dim=-1))
    yield _whole(lambda sizes: torch.tensor([sizes.grid[1:]]))


def _numbers(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Numbers as Python has them: the size that the name says."""
    name = argument.name
    axis = 0 if "frame" in name else 1 if "height" in name else 2
    if "audio" in name:
        yield lambda sizes: {"#": torch.tensor(sizes.text(name))}
    yield lambda sizes: {"#": torch.tensor(sizes.grid[axis])}
    yield lambda sizes: {"#": torch.tensor(sizes.latents[axis])}


def _fps(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    yield lambda sizes: {"#": torch.tensor(30 - 6 * sizes.index)}
    yield _whole(lambda sizes: torch.tensor([sizes.index]))


def _picture_sizes(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    yield lambda sizes: {"": torch.tensor([PICTURES[sizes.index]])}


def _rope(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Cosines and sines of positions, for a head or a part of it; then complex ones."""
    head = next((v for k, v in sizes.config.items() if "head_dim" in k and isinstance(v, int)), None)
    heads = next((v for k, v in sizes.config.items() if k.endswith("num_attention_heads")), 1)
    whole = next((v for k, v in sizes.config.items() if k in ("hidden_size", "dim")), 0)
    dims = [width for width in (head, whole // heads) if width]
    dims = [part for width in dims for part in (width, width // 2)]
    spans: list[Callable[[Sizes], int]] = [
        lambda sizes: sizes.tokens,
        lambda sizes: sizes.tokens + sizes.text("text"),
        lambda sizes: sizes.tokens + 1,
    ]
    for span, width in product(spans, dims):
        yield lambda sizes, span=span, width=width: _cos_sin(span(sizes), width)  # type: ignore[misc]
    for width in dims:
        yield _whole(lambda sizes, width=width: _turning(40, width).reshape(40, 1, -1).repeat(1, 40, 1))  # type: ignore[misc]
    for span, width in product(spans, dims):
        yield _whole(lambda sizes, span=span, width=width: _turning(span(sizes), width))  # type: ignore[misc]


def _angles(length: int, width: int) -> torch.Tensor:
    rates = _THETA ** -torch.linspace(0, 1, width // 2)
    return torch.outer(torch.arange(length).float(), rates)


def _cos_sin(length: int, width: int) -> Tensors:
    angles = _angles(length, width).repeat_interleave(2, dim=-1)
    return {"(0)": angles.cos(), "(1)": angles.sin()}


def _turning(length: int, width: int) -> torch.Tensor:
    angles = _angles(length, width)
    return torch.polar(torch.ones_like(angles), angles)


def _other_latents(argument: Argument, sizes: Sizes) -> Iterator[Option]:
    """Latents beside the noisy ones: of the same size, of one frame, of more frames, packed."""
    name = argument.name
    channels = list(dict.fromkeys([*[v for k, v in sizes.config.items() if "channels" in k and isinstance(v, int)], *sizes.widths]))
    frames: list[Callable[[Sizes], int]] = [
        lambda sizes: sizes.latents[0],
        lambda sizes: 1,
        lambda sizes: 2 * sizes.latents[0],
        lambda sizes: 4 * sizes.latents[0],
    ]
    for span, width in product(frames, channels):
        yield _whole(lambda sizes, span=span, width=width: sizes.values(name, (1, width, span(sizes), *sizes.latents[1:])))  # type: ignore[misc]
    for width in channels:
        yield _whole(lambda sizes, width=width: sizes.values(name, (1, sizes.text(name), width)))  # type: ignore[misc]
        yield lambda sizes, width=width: {"[0]": sizes.values(name, (1, width, *sizes.latents[1:]))}  # type: ignore[misc]


_Make = Callable[[Argument, Sizes], Iterator[Option]]
_ROLES: Sequence[tuple[re.Pattern[str], _Make | None]] = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        (r"controlnet|kwargs$|return_dict|skip_layers|cache|^enable_|sparse|scale$|scale_factor|^self$|batch_size$", None),
        (r"^img_shapes$", _picture_sizes),
        (r"^(t|timesteps?|timestep_r|audio_timestep|sigma|audio_sigma|\w*noise_time)$", _time),
        (r"^ofs$", _time),
        (r"guidance$", _guidance),
        (r"encodings_and_masks", None),
        (r"rot(ary|e)|^freqs_cis$", _rope),
        (r"mask(s|_t5|_2)?$", _mask),
        (r"^indices|position_ids$|rope_pos$", _indices),
        (r"(^|_)ids$|coords$", _ids),
        (r"input_ids$|token_ids?$", _tokens),
        (r"class_labels|^style$|additional_t_cond", _label),
        (r"_drop$", _drop),
        (r"(original|target|meta)_size$|crop_coords$", _pair),
        (r"^(audio_)?(num_frames|height|width)$", _numbers),
        (r"^fps$", _fps),
        (r"latents|pose_hidden_states|control_hidden_states|audio_hidden_states|^noise", _other_latents),
    )
)
