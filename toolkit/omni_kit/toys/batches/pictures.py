"""Images, videos and sounds as a class reads them: tensors, shapes, and the tokens of each.

The arguments of `get_image_features` and its like for videos and audio say which tensors there are. Shapes are tried,
the likeliest first; the model is asked how many tokens a picture becomes, because formulas in configs and towers
disagree.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import torch

from omni_kit.toys.batches.sounds import Sound, sounds
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import shuffled_ramp
from omni_kit.toys.width_errors import WIDTHS
from omni_kit.upstream.transformers.configs import GRIDS, SEEING

# Frames, rows and columns of patches. No two sizes are alike, and rows differ from columns. Of one kind, the n-th of a
# batch has the n-th size.
_IMAGES = ((1, 4, 6), (1, 8, 6), (1, 6, 10))
_FILMS = ((3, 4, 6), (2, 6, 4))
_PAIRED_FILMS = ((4, 4, 6), (2, 6, 4))  # where two frames become one
_NATIVE = ((2, 3), (3, 2), (3, 1))  # rows and columns of merged patches
_SHAPES = ((1, 2), (2, 1), (1, 1))  # of a picture in tiles, in tiles
_FRAMES = (3, 2)
_MOST_TILES = 12
_MERGE = 2
_SECONDS = (2.0, 1.0)  # between two frames of a film

Piece = Callable[[int], Tensors]


@dataclass(frozen=True)
class Form:
    """One way of handing over pictures, or films.

    Attributes:
        piece: the tensors of the n-th piece; those of several are joined along the first dimension.
        together: a row of the batch holds all of its pictures, in a dimension behind that of rows.
        aside: tensors of the n-th piece that the tower does not take.
        refitted: the form whose width is this many times as large, of a width that a config does not name.
    """

    piece: Piece
    together: bool = False
    aside: Piece = lambda _: {}
    refitted: Callable[[Fraction], "Form"] | None = None

    def fitted(self, error: str) -> "Form | None":
        """Return the form of the width that a layer requires by torch's message; None if it does not say."""
        found = next((match for pattern in WIDTHS if (match := pattern.search(error))), None)
        share = Fraction(int(found["wants"]), int(found["came"])) if found is not None else 1
        return self.refitted(Fraction(share)) if self.refitted is not None and share != 1 else None

    def tokens(self, model: Any, getter: str, number: int, token: int) -> int:
        """Return the number of tokens of the n-th item, for each of which `token` stands in the text."""
        pieces = self.piece(number)
        device = next(model.parameters()).device
        fed = {name: (one[None] if self.together else one).to(device) for name, one in pieces.items()}
        with torch.no_grad():
            made = _made_in_forward(model, getter, fed, token)
        if made is not None:
            return _count(made)
        pixels, *others = fed.values()
        named = dict(zip(list(fed)[1:], others, strict=True)) | _unsaid(model, getter)
        with torch.no_grad():
            return _count(tower(model, getter)(pixels, **named, return_dict=True))


class _Made(BaseException):
    """Ends a forward as soon as it has features."""

    def __init__(self, features: Any) -> None:
        super().__init__()
        self.features = features


def _made_in_forward(model: Any, getter: str, fed: Tensors, token: int) -> Any:
    """Return the features that forward gets, which knows what else their method takes; None if it does not
    reach that.
    """
    inner = getattr(model, "model", None)
    owner, called = inner if hasattr(inner, getter) else model, False
    right = getattr(owner, getter)

    def watched(*args: Any, **kwargs: Any) -> Any:
        nonlocal called
        called = True
        raise _Made(right(*args, **kwargs))

    ids = torch.full((1, 1), token, device=next(model.parameters()).device)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "mm_token_type_ids": torch.ones_like(ids)}
    taken = inspect.signature(model.forward).parameters
    named = {name: tensor for name, tensor in (given | fed).items() if name in taken}
    if not fed.keys() <= named.keys():
        return None
    setattr(owner, getter, watched)
    try:
        model(**named)
    except _Made as made:
        return made.features
    except (AttributeError, AssertionError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
        if called:
            raise
    finally:
        delattr(owner, getter)
    return None


def _count(answer: Any) -> int:
    """Return the tokens in what a tower answers, a tensor or one for each picture."""
    found = getattr(answer, "pooler_output", None)
    if found is None:
        found = getattr(answer, "last_hidden_state", answer)
    if isinstance(found, torch.Tensor):
        return found.numel() // found.shape[-1]
    if not isinstance(found, list | tuple):
        raise TypeError(f"features are a {type(found).__name__}")
    return sum(_count(one) for one in found)


def forms(model: Any, getter: str) -> Iterator[Form]:
    """Yield the forms that the names of a getter's arguments allow, the likeliest first."""
    if tower(model, getter) is None:
        return
    names, film = _taken(model, getter), "video" in getter
    if "audio" in getter:
        yield from map(_heard, sounds(model.config, names))
        return
    pixels = _pixels(model, names[0], film)
    make = _Maker(pixels, model.config)
    grid = next((name for name in names if name.endswith(GRIDS)), None)
    places = next((name for name in names if name.endswith("_position_ids")), None)
    if grid is not None:
        merges = next((name for name in names if name.endswith("merge_sizes")), None)
        for sizes in (_FILMS, _PAIRED_FILMS) if film else (_IMAGES,):
            aside = make.seconds(sizes) if film else _nothing
            for width in make.widths():
                yield _patched(partial(make.patches, grid, merges, sizes), width, aside)
    elif places is not None:
        for width in make.widths():
            yield _patched(partial(make.placed, places, film=film), width, _nothing)
    elif pixels.endswith("_patches"):
        yield Form(make.joined())
    elif film:
        yield Form(make.frames(_FRAMES))
        yield Form(make.frames(_FRAMES[:1]))  # no mask says which frames are padding: all have as many
    elif "spatial_shapes" in names:
        yield Form(make.shaped())
    elif "pixel_attention_mask" in names:
        yield Form(make.masked("pixel_attention_mask"), together=True)
        yield Form(make.padded("pixel_attention_mask"))
    elif "pixel_mask" in names:
        yield Form(make.masked("pixel_mask"))
    elif "image_sizes" in names:
        yield Form(make.native())
        yield from (Form(make.tiles(count)) for count in range(1, _MOST_TILES))
    else:
        others = {name: side for name in names[1:] if (side := make.side_of(name)) is not None}
        yield Form(make.squares(others))
        yield Form(make.squares(others, tiled=True))


def _heard(sound: Sound) -> Form:
    """The form of a sound, whose bins may have to be others."""

    def refitted(share: Fraction) -> Form:
        return Form(replace(sound, bins=int(sound.bins * share)))

    return Form(sound, refitted=refitted)


def _patched(make: Callable[[tuple[int, ...]], Piece], width: tuple[int, ...], aside: Piece) -> Form:
    """The form of patches of a width, which may have to be another if they are flat."""

    def refitted(share: Fraction) -> Form:
        return Form(make((int(width[0] * share),)), aside=aside)

    return Form(make(width), aside=aside, refitted=refitted if len(width) == 1 else None)


def tower(model: Any, getter: str) -> Any:
    """Return the method of a model, or of the model inside of it, that makes features; None if neither has one."""
    return getattr(model, getter, None) or getattr(getattr(model, "model", None), getter, None)


def _taken(model: Any, getter: str) -> list[str]:
    """Return the names of a getter's arguments: the method of a whole passes on what it does not name itself."""
    owners = (one for one in (model, getattr(model, "model", None)) if hasattr(one, getter))
    named = (inspect.signature(getattr(owner, getter)).parameters.values() for owner in owners)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return list(dict.fromkeys(one.name for parameters in named for one in parameters if one.kind in kinds))


def _pixels(model: Any, name: str, film: bool) -> str:
    """Return forward's name of a getter's first argument: methods for films may name theirs after pictures."""
    named = inspect.signature(model.forward).parameters
    others = [f"{name}_videos"] if film else [] if name in named else ["image_patches"]
    return next((other for other in others if other in named), name)


def _unsaid(model: Any, getter: str) -> dict[str, Any]:
    """Settings that forward takes from the tower's config, and the getter has to be given."""
    vision = getattr(model.config, "vision_config", model.config)
    needed = inspect.signature(tower(model, getter)).parameters.values()
    return {one.name: getattr(vision, one.name) for one in needed
            if one.default is one.empty and hasattr(vision, one.name)}  # fmt: skip


def _nothing(_: int) -> Tensors:
    return {}


class _Maker:
    """Makes tensors of the sizes that a config names."""

    def __init__(self, pixels: str, config: Any) -> None:
        self._pixels, self._config, self._vision = pixels, config, _seeing(config)
        self._channels = _first(self._vision, "num_channels", "in_channels", "in_chans") or 3
        self._patch = _side(getattr(self._vision, "patch_size", None)) or 1
        self._merge = _first(config, "spatial_merge_size") or _first(self._vision, "spatial_merge_size") or _MERGE

    @property
    def _size(self) -> int:
        side = _side(getattr(self._vision, "image_size", None)) or _first(self._vision, "resolution")
        return side or self._patch * 2 * self._merge

    def side_of(self, name: str) -> int | None:
        """Return the side of further pixels of another resolution, by the config that is called after them."""
        other = getattr(self._config, f"{name.removesuffix('_pixel_values')}_vision_config", None)
        return _side(getattr(other, "image_size", None)) if name.endswith("pixel_values") else None

    def widths(self) -> Iterator[tuple[int, ...]]:
        """Return possible layouts of a patch: flat, of several frames or of one, or a small image, also of several."""
        flat = self._channels * self._patch**2
        if frames := _first(self._vision, "temporal_patch_size"):
            yield (flat * frames,)
        yield (flat,)
        yield (self._channels, self._patch, self._patch)
        yield (self._merge * self._patch, self._merge * self._patch, self._channels)

    def patches(
        self, grid: str, merges: str | None, sizes: tuple[tuple[int, int, int], ...], width: tuple[int, ...]
    ) -> Piece:
        def piece(number: int) -> Tensors:
            frames, rows, columns = sizes[number % len(sizes)]
            found = {
                self._pixels: self._values(number, (frames * rows * columns, *width)),
                grid: torch.tensor([[frames, rows, columns] if grid.endswith(GRIDS[0]) else [rows, columns]]),
            }
            return found | ({merges: torch.tensor([self._merge])} if merges is not None else {})

        return piece

    def joined(self) -> Piece:
        """Flat patches: pictures of one size, because no grid says where one ends."""
        rows, columns = _NATIVE[0]
        shape = (1, rows * columns, self._channels * self._patch**2)
        return lambda number: {self._pixels: self._values(number, shape)}

    def seconds(self, sizes: tuple[tuple[int, int, int], ...]) -> Piece:
        return lambda number: {"video_second_per_grid": torch.tensor([_SECONDS[number % len(_SECONDS)]])}

    def frames(self, counts: tuple[int, ...]) -> Piece:
        shape = (self._channels, self._size, self._size)
        return lambda number: {self._pixels: self._values(number, (1, counts[number % len(counts)], *shape))}

    def shaped(self) -> Piece:
        def piece(number: int) -> Tensors:
            rows, columns = (self._merge * one for one in _NATIVE[number % len(_NATIVE)])
            return {
                self._pixels: self._values(number, (1, rows * columns, self._channels * self._patch**2)),
                "spatial_shapes": torch.tensor([[rows, columns]]),
                "pixel_attention_mask": torch.ones(1, rows * columns, dtype=torch.long),
            }

        return piece

    def placed(self, places: str, width: tuple[int, ...], *, film: bool) -> Piece:
        """Flat patches with the column and row of each, padded to as many as the largest picture has.

        Args:
            film: there are several frames of them, in a dimension of their own.
        """
        side = _first(self._vision, "pooling_kernel_size") or self._merge
        most = max(rows * columns for rows, columns in _NATIVE) * side**2

        def piece(number: int) -> Tensors:
            rows, columns = (side * one for one in _NATIVE[number % len(_NATIVE)])
            row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
            frames = (1, _FRAMES[0]) if film else (1,)  # as many in each film, which are joined
            patches = torch.zeros(*frames, most, *width)
            patches[..., : rows * columns, :] = self._values(number, (*frames, rows * columns, *width))
            at = torch.full((*frames, most, 2), -1)
            at[..., : rows * columns, :] = torch.stack([column.flatten(), row.flatten()], -1)
            return {self._pixels: patches, places: at}

        return piece

    def masked(self, name: str) -> Piece:
        """Every second picture does not fill its square."""

        def piece(number: int) -> Tensors:
            mask = torch.ones(1, self._size, self._size, dtype=torch.bool)
            mask[..., self._size - self._patch * (number % 2) :] = False
            return {**self.squares({})(number), name: mask}

        return piece

    def padded(self, name: str) -> Piece:
        """Squares in a second dimension, with a mask of those that are not padding."""

        def piece(number: int) -> Tensors:
            counts = [rows * columns for rows, columns in _SHAPES]
            here = torch.arange(max(counts)) < counts[number % len(counts)]
            shape = (1, max(counts), self._channels, self._size, self._size)
            return {self._pixels: self._values(number, shape), name: here[None]}

        return piece

    def native(self) -> Piece:
        def piece(number: int) -> Tensors:
            rows, columns = (self._patch * self._merge * one for one in _NATIVE[number % len(_NATIVE)])
            return {
                self._pixels: self._values(number, (1, self._channels, rows, columns)),
                "image_sizes": torch.tensor([[rows, columns]]),
            }

        return piece

    def tiles(self, count: int) -> Piece:
        def piece(number: int) -> Tensors:
            shape = _SHAPES[number % len(_SHAPES)]
            return {
                self._pixels: self._values(number, (1, count, self._channels, self._size, self._size)),
                "image_sizes": torch.tensor(
                    [[side * self._size - 2 * self._patch * place for place, side in enumerate(shape)]]
                ),
            }

        return piece

    def squares(self, others: Mapping[str, int], *, tiled: bool = False) -> Piece:
        def piece(number: int) -> Tensors:
            sides = {self._pixels: self._size, **others}
            tiles = (1,) if tiled else ()
            return {
                name: self._values(number, (1, *tiles, self._channels, side, side), name)
                for name, side in sides.items()
            }

        return piece

    def _values(self, number: int, shape: tuple[int, ...], name: str = "") -> torch.Tensor:
        return shuffled_ramp(f"{name or self._pixels} {number}", shape)


def _seeing(config: Any) -> Any:
    """Return the config of what sees: a tower, a tokenizer of pictures, or the model itself."""
    return next((one for key in SEEING if (one := getattr(config, key, None))), config)


def _first(config: Any, *names: str) -> int | None:
    return next((int(value) for name in names if isinstance(value := getattr(config, name, None), int)), None)


def _side(size: Any) -> int | None:
    """Return the side of a square; configs store one number or two."""
    if isinstance(size, (list, tuple)):
        return int(size[0])
    return int(size) if isinstance(size, int) else None
