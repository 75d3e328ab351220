"""The smallest input of each kind of media that a class takes, as expressions over its config.

Under FSDP a process that has no picture must run the tower all the same: the others wait for its part of the weights.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omni_kit.pysource.source import dotted
from omni_kit.targets.veomni.media.merging import PLACES, Features, Merging
from omni_kit.upstream.transformers.config_view import ConfigView
from omni_kit.upstream.transformers.configs import BINS, GRIDS, HEARING, SEEING, WHOLE
from omni_kit.upstream.transformers.models import UpstreamModel

_CHANNELS = ("num_channels", "in_channels", "in_chans")
_MERGES = ("spatial_merge_size", "downsample_factor", "merge_size")
_POOLED = "pooling_kernel_size"
_LENGTHS, _SUBSAMPLED = "audio_feature_lengths", "subsampling_conv_channels"
_FRAMES = 64
_SMALL_PICTURES = re.compile(r"(\w+, ){4}\w+ = \w+\.shape")
_MERGED_PICTURES = re.compile(r"pixel_values\.reshape\(-1, .*pixel_values\.shape\[-1\]\)")


@dataclass(frozen=True)
class Dummy:
    """The smallest input of one kind.

    Attributes:
        inputs: argument of forward -> the expression of its value; `config` and `options` are known to it.
    """

    kind: str
    inputs: Mapping[str, str]

    @property
    def lines(self) -> list[str]:
        """The statements that return it."""
        return ["return (", *(f"    {value}," for value in self.inputs.values()), ")"]


def dummies_of(model: UpstreamModel, merging: Merging) -> list[Dummy]:
    """Return the dummies of a class; a kind with unknown inputs is left out."""
    placed = [one for one in merging.features if one.placed is not None]
    found = [(one, dict(_inputs(model, one))) for one in placed]
    getters = [model.source.method(merging.owner, f"get_{one.kind}_features") for one, _ in found]
    return [
        Dummy(one.kind, inputs)
        for (one, inputs), getter in zip(found, getters, strict=True)
        if inputs and required_inputs(getter, one) <= inputs.keys()
    ]


def required_inputs(getter: ast.FunctionDef | None, one: Features) -> set[str]:
    """Return the inputs that a call passes to parameters of its method that have no default."""
    if getter is None:
        return set()
    parameters = getter.args.args[1:]
    needed = {argument.arg for argument in parameters[: len(parameters) - len(getter.args.defaults)]}
    given = [*zip((argument.arg for argument in parameters), one.call.args, strict=False)]
    given += [(keyword.arg, keyword.value) for keyword in one.call.keywords if keyword.arg is not None]
    handed = {dotted(value) for name, value in given if name in needed}
    return {name for name in one.inputs if name in handed}


def without_dummies(model: UpstreamModel, merging: Merging) -> list[str]:
    """Return the kinds of media of which no smallest input is known."""
    known = {one.kind for one in dummies_of(model, merging)}
    return [one.kind for one in merging.features if one.kind not in known]


def batched(one: Features) -> bool:
    """Return whether the pictures of a row are in a dimension of their own, behind that of rows."""
    return "pixel_attention_mask" in one.inputs and "spatial_shapes" not in one.inputs


def _inputs(model: UpstreamModel, one: Features) -> Iterator[tuple[str, str]]:
    if one.kind == "audio":
        yield from _sound(model, one)
        return
    vision = _Vision(model)
    if not one.inputs or not vision.known:
        return
    pixels, names, film = one.inputs[0], set(one.inputs), one.kind == "video"
    grid = next((name for name in one.inputs if name.endswith(GRIDS)), None)
    places = next((name for name in one.inputs if name.endswith(PLACES)), None)
    square = f"{vision.channels}, {vision.size}, {vision.size}"
    if grid is not None:
        frames = 2 if film else 1
        rows = f"{frames} * {vision.merge} ** 2"
        yield pixels, f"torch.ones({rows}, {vision.width}, **options)"
        sizes = f"{frames}, " if grid.endswith(GRIDS[0]) else ""
        yield grid, f'torch.tensor([[{sizes}{vision.merge}, {vision.merge}]], device=options["device"])'
        for name in (name for name in one.inputs if name.endswith("merge_sizes")):
            yield name, f'torch.tensor([{vision.merge}], device=options["device"])'
    elif places is not None:
        rows, side = "1, 1" if film else "1", f'torch.arange({vision.pooled}, device=options["device"])'
        yield pixels, f"torch.ones({rows}, {vision.pooled} ** 2, {vision.flat}, **options)"
        yield places, f"torch.cartesian_prod({side}, {side}).reshape({rows}, -1, 2)"
    elif pixels.endswith("_patches"):
        yield pixels, f"torch.ones(1, 1, {vision.flat}, **options)"
    elif film:
        yield pixels, f"torch.ones(1, 1, {square}, **options)"
    elif "spatial_shapes" in names:
        yield pixels, f"torch.ones(1, {vision.merge} ** 2, {vision.channels} * {vision.patch} ** 2, **options)"
        yield "spatial_shapes", f'torch.tensor([[{vision.merge}, {vision.merge}]], device=options["device"])'
        yield "pixel_attention_mask", f'torch.ones(1, {vision.merge} ** 2, dtype=torch.long, device=options["device"])'
    elif batched(one):
        yield pixels, f"torch.ones(1, 1, {square}, **options)"
        inside = "" if _selects(model, pixels) else f", {vision.size}, {vision.size}"
        yield "pixel_attention_mask", _ones(f"1, 1{inside}")
    elif model.config.has("image_grid_pinpoints"):
        tiles = f"1 + max(h * w for h, w in config.image_grid_pinpoints) // {vision.size} ** 2"
        yield pixels, f"torch.ones(1, {tiles}, {square}, **options)"
        yield "image_sizes", f'torch.tensor([[{vision.size}, {vision.size}]], device=options["device"])'
    elif "image_sizes" in names and _takes_sizes(model, one):
        side = f"2 * {vision.merge} * {vision.patch}"  # several features: upstream squeezes a dimension of one
        yield pixels, f"torch.ones(1, {vision.channels}, {side}, {side}, **options)"
        yield "image_sizes", f'torch.tensor([[{side}, {side}]], device=options["device"])'
    else:
        yield pixels, f"torch.ones(1, {square}, **options)"
        if "pixel_mask" in names:
            yield "pixel_mask", _ones(f"1, {vision.size}, {vision.size}")
        for name in sorted(name for name in names - {pixels} if name.endswith("pixel_values")):
            other = f"side_of(config.{name.removesuffix('_pixel_values')}_vision_config.image_size)"
            yield name, f"torch.ones(1, {vision.channels}, {other}, {other}, **options)"


def _selects(model: UpstreamModel, pixels: str) -> bool:
    """Return whether the mask selects whole pictures, so that it has no rows and columns of its own."""
    read = (node for node in ast.walk(model.source.tree) if isinstance(node, ast.Subscript))
    return any(dotted(node.value) == pixels and dotted(node.slice) == "pixel_attention_mask" for node in read)


def _sound(model: UpstreamModel, one: Features) -> Iterator[tuple[str, str]]:
    """Yield the smallest spectrogram that an audio tower accepts.

    One window for a tower with a window size (`n_window`). For a tower that downsamples frames and bins twice and has
    as many bins as channels, the four frames of one feature. For others the one length that they take, or frames enough
    for any downsampling.
    """
    part = next((key for key in HEARING if isinstance(model.built_config.get(key), ConfigView)), None)
    if part is None:
        return
    hearing = model.built_config.get(part)
    if _LENGTHS in one.inputs and hearing.has("n_window"):
        frames = "2 * config.audio_config.n_window"
        yield one.inputs[0], f"torch.ones(1, config.audio_config.num_mel_bins, {frames}, **options)"
        yield "feature_attention_mask", f'torch.ones(1, {frames}, dtype=torch.long, device=options["device"])'
    elif hearing.has(_SUBSAMPLED) and len(one.inputs) == 2:
        yield one.inputs[0], f"torch.ones(1, 4, config.audio_config.{_SUBSAMPLED}[0], **options)"
        yield one.inputs[1], _ones("1, 4")
    elif (bins := next(_bins(hearing, f"config.{part}"), "")) != "":
        frames = f"2 * config.{part}.{WHOLE}" if hearing.has(WHOLE) else str(_FRAMES)
        sizes = [frames, bins]
        shape = ", ".join(reversed(sizes) if bins_first(model.source.tree, bins.rpartition(".")[2]) else sizes)
        yield one.inputs[0], f"torch.ones(1, {shape}, **options)"
        yield from ((name, _ones(f"1, {frames}")) for name in one.inputs[1:] if name.endswith("_mask"))


def _bins(config: ConfigView, path: str) -> Iterator[str]:
    """Yield the paths of the number of bins, in a tower's config and in those of its parts."""
    yield from (f"{path}.{name}" for name in BINS if config.has(name))
    for key in config.as_dict():
        if isinstance(part := config.get(key), ConfigView):
            yield from _bins(part, f"{path}.{key}")


def bins_first(tree: ast.AST, bins: str) -> bool:
    """Return whether a tower begins with a convolution over frames, whose channels are the bins."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    return any(
        str(dotted(node.func)).endswith("Conv1d") and str(dotted(node.args[0])).endswith(f".{bins}") for node in calls
    )


def _ones(shape: str) -> str:
    return f'torch.ones({shape}, dtype=torch.bool, device=options["device"])'


def _takes_sizes(model: UpstreamModel, one: Features) -> bool:
    """Return whether the method that makes features names the sizes of pictures, and does not only hand them on."""
    getter = f"get_{one.kind}_features"
    methods = (model.source.method(name, getter) for name in model.source.classes)
    return any("image_sizes" in {argument.arg for argument in node.args.args} for node in methods if node is not None)


class _Vision:
    """Expressions for the sizes of pictures in a config: its vision tower's, its image tokenizer's, or its own."""

    def __init__(self, model: UpstreamModel) -> None:
        self._model, self._whole = model, model.built_config
        parts = {key: part for key in SEEING if isinstance(part := self._whole.get(key), ConfigView)}
        self._key, self._part = next(iter(parts.items()), ("", self._whole))

    @property
    def known(self) -> bool:
        """Return whether the config says anything of pictures."""
        return bool(self._key) or self._named("patch_size") is not None

    def _named(self, *names: str) -> str | None:
        for name in names:
            if self._key and self._part.has(name):
                return f"config.{self._key}.{name}"
            if self._whole.has(name):
                return f"config.{name}"
        return None

    @property
    def channels(self) -> str:
        return self._named(*_CHANNELS) or "3"

    @property
    def patch(self) -> str:
        return f"side_of({self._named('patch_size')})"

    @property
    def size(self) -> str:
        return f"side_of({self._named('image_size', 'resolution')})"

    @property
    def merge(self) -> str:
        return self._named(*_MERGES) or "2"

    @property
    def pooled(self) -> str:
        """The side of what becomes one feature, in patches."""
        return self._named(_POOLED) or "1"

    @property
    def width(self) -> str:
        """The dimensions of one patch: flat, of one frame or several, or as a small picture, of one or merged."""
        frames, text = self._named("temporal_patch_size"), self._model.source.code
        if _MERGED_PICTURES.search(text):
            return f"{self.merge} * {self.patch}, {self.merge} * {self.patch}, {self.channels}"
        if frames is None and _SMALL_PICTURES.search(text):
            return f"{self.channels}, {self.patch}, {self.patch}"
        return f"{self.flat} * {frames}" if frames is not None else self.flat

    @property
    def flat(self) -> str:
        """The dimension of one patch of one frame."""
        return f"{self.channels} * {self.patch} ** 2"
