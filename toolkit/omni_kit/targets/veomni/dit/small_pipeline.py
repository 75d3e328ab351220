"""A small pipeline of diffusers next to a model of conditions, and media of the sizes that it draws."""

import contextlib
import inspect
import io
import json
import math
import re
import shutil
import wave
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.targets.references.pipelines import PipelineBuilder, read_pipeline
from omni_kit.targets.replacing import replaced
from omni_kit.toys.batches.pipeline import PROMPTS, PipelineBatchBuilder, Scenario
from omni_kit.toys.pipelines.parts import let_decode, told
from omni_kit.upstream.diffusers.calling import FRAMES, seconds_of
from omni_kit.upstream.diffusers.defaults import images_needed

SIZES, STEPS = ((64, 64), (64, 96)), 3
"""Rows and columns that small pipelines are asked for, and in how many steps."""
FRAME_COUNT = 5
"""Of films: as many frames as small pipelines are fitted to."""
_SHIFTS = "use_dynamic_shifting"
_SOUND = (64,)
Size = tuple[int, ...]
"""Rows and columns of a picture or film; samples of a sound."""
Shape = tuple[int, ...]
"""Frames, rows and columns of a medium; samples of a sound."""


class _Sizes(PipelineBatchBuilder):
    """Both sizes: pipelines that draw pictures of a fixed area count their tokens by it."""

    scenarios = tuple(
        Scenario(*size, guided=bool(number), prompt=number, frames=FRAME_COUNT) for number, size in enumerate(SIZES)
    )


class ConditionsNotTested(Exception):
    """There is nothing to teach with; why."""


def toy(pipeline_class: str, root: Path) -> Any:
    """Return a small pipeline of a class, saved below `root`.

    Raises:
        ConditionsNotTested: none can be made.
        MissingRequirement: its pipeline needs a package that is not installed.
    """
    try:
        return _fitting_toy(pipeline_class, root)
    except (ConditionsNotTested, ImportError, MissingRequirement):
        raise
    except Exception as error:  # whatever a pipeline raises that was made for other sizes
        raise ConditionsNotTested(f"a small {pipeline_class} fails with {told(error)}") from error


def _fitting_toy(pipeline_class: str, root: Path) -> Any:
    pipeline = _toy(pipeline_class, root)
    if not draws_own_size(pipeline):
        return pipeline
    if levels := _levels_wanted(pipeline):
        file = root.parent / "toy_config.json"
        file.write_text(json.dumps({"class": pipeline_class, "changed": {"vae": levels}}), encoding="utf-8")
        shutil.rmtree(root)
        pipeline = _toy(str(file), root)
    drawn_shape(pipeline, sizes_of(pipeline)[0])
    return pipeline


def _toy(source: str, root: Path) -> Any:
    builder = PipelineBuilder()
    builder.open({})
    try:
        builder.make_toy(source, _Sizes())
    except BadInput as error:
        raise ConditionsNotTested(error.message) from error
    builder.save_toy(None, root, "hub")
    _shift_by_size(root)
    pipeline = _loaded(root)
    if not hasattr(getattr(pipeline, "vae", None), "encode"):
        raise ConditionsNotTested(f"{type(pipeline).__name__} has no autoencoder with an encoder")
    if "height" not in inspect.signature(pipeline.__call__).parameters and not _seconds(pipeline):
        raise ConditionsNotTested(f"{type(pipeline).__name__} generates neither images, nor videos, nor sounds")
    return pipeline


def sizes_of(pipeline: Any) -> Sequence[Size]:
    """Return two sizes to ask a pipeline for; of sounds, the longest where it has one, and a shorter one."""
    if not _seconds(pipeline):
        return SIZES
    (longest,) = drawn_shape(pipeline, _SOUND)
    return (longest,), (longest * 3 // 4,)


def draws_own_size(pipeline: Any) -> bool:
    """Return whether a pipeline draws other sizes than it is asked for: pictures of a fixed area, or chunks of
    frames.
    """
    size = sizes_of(pipeline)[0]
    return drawn_shape(pipeline, size) != asked_shape(pipeline, size)


def asked_shape(pipeline: Any, size: Size) -> Shape:
    """Return the shape of a medium of a size."""
    return size if _seconds(pipeline) else (FRAME_COUNT, *size)


def drawn_shape(pipeline: Any, size: Size) -> Shape:
    """Return the shape of a medium of which the autoencoder makes as many latents as the pipeline decodes for a size.

    Raises:
        ConditionsNotTested: no such shape follows from those latents.
    """
    asked = asked_shape(pipeline, size)
    found, encoded = decoded_latents(pipeline, size=size).shape, _encoded_shape(pipeline, asked)
    if math.prod(found) == math.prod(encoded):
        return asked
    if len(found) == len(encoded):
        axes = range(-len(size), 0)
        drawn = tuple(length * found[axis] // encoded[axis] for length, axis in zip(size, axes, strict=True))
        if not _seconds(pipeline):
            frames = FRAME_COUNT
            if len(found) == 5 and 1 < encoded[2] != found[2]:  # the first frame has latents of its own
                frames = 1 + (found[2] - 1) * (FRAME_COUNT - 1) // (encoded[2] - 1)
            drawn = (frames, *drawn)
        if drawn != asked and math.prod(found) == math.prod(_encoded_shape(pipeline, drawn)):
            return drawn
    raise ConditionsNotTested(
        f"{type(pipeline).__name__} takes the size of latents from elsewhere: {list(found)} in a small one"
    )


def _encoded_shape(pipeline: Any, shape: Shape) -> torch.Size:
    """Return the shape of what a pipeline's autoencoder makes of a medium, frame by frame where it knows pictures
    alone.
    """
    if _seconds(pipeline):
        pixels = torch.zeros(1, pipeline.vae.config.audio_channels, *shape)
    else:
        frames, rows, columns = shape
        pixels = torch.zeros(frames if films(pipeline) else 1, 3, rows, columns)
        pixels = pixels.transpose(0, 1)[None] if _deep(pipeline) else pixels
    made: list[torch.Tensor] = []
    with encoding(type(pipeline.vae), made), torch.no_grad():
        pipeline.vae.encode(pixels)
    return made[0].shape


def _levels_wanted(pipeline: Any) -> dict[str, Any]:
    """Return the arguments of an autoencoder that makes latents as small as the pipeline says; none if it does
    not say.
    """
    config, scale = pipeline.vae.config, getattr(pipeline, "vae_scale_factor", None)
    channels = config.get("block_out_channels")
    if not isinstance(scale, int) or scale & (scale - 1):
        return {}
    if not channels:
        return _patches_wanted(config, scale)
    count = scale.bit_length()
    names = [name for name, value in config.items() if isinstance(value, list | tuple) and len(value) == len(channels)]
    names = [name for name in names if name == "block_out_channels" or name.endswith("block_types")]
    return {name: [config[name][0]] * count for name in names}


def _patches_wanted(config: Mapping[str, Any], scale: int) -> dict[str, Any]:
    """Return the settings of an autoencoder that takes patches of pixels, and as many channels of each."""
    own = config.get("scale_factor_spatial")
    if "patch_size" not in config or not isinstance(own, int) or scale % own or scale == own:
        return {}
    side, colours = scale // own, ("in_channels", "out_channels")
    wanted = {name: 3 * side**2 for name in colours if config.get(name) == 3}
    return {"patch_size": side, "scale_factor_spatial": scale, **wanted}


def _shift_by_size(root: Path) -> None:
    """Let the scheduler shift noise levels by the size of latents, if the pipeline says by how much."""
    file = root / "scheduler" / "scheduler_config.json"
    if not file.is_file():
        return
    values = json.loads(file.read_text(encoding="utf-8"))
    source = inspect.getsource(type(_loaded(root)).__call__)
    if _SHIFTS in values and re.search(r"\bmu\s*=", source):
        file.write_text(json.dumps({**values, _SHIFTS: True}), encoding="utf-8")


def decoded_latents(
    pipeline: Any,
    changed: Callable[[Any], Any] = lambda _: contextlib.nullcontext(),
    size: Size | None = None,
) -> torch.Tensor:
    """Return what a pipeline passes its autoencoder.

    Args:
        changed: a context in which the pipeline differs.
        size: by default the first of its sizes.
    """
    seen: list[torch.Tensor] = []

    class Seen(Exception):
        """Ends the pipeline at its decoder."""

    def decode(latents: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        seen.append(latents)
        raise Seen

    with changed(pipeline), replaced(pipeline.vae, "decode", decode), contextlib.suppress(Seen), torch.no_grad():
        pipeline(**call_arguments(pipeline, size or sizes_of(pipeline)[0], STEPS))
    return seen[0]


def call_arguments(pipeline: Any, size: Size, steps: int, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the arguments of a pipeline's call.

    Args:
        settings: other arguments; those that are None are left to the pipeline.
    """
    asked = {
        "prompt": PROMPTS[0], "num_inference_steps": steps, "guidance_scale": 1.0, "use_resolution_binning": False,
        "generator": torch.Generator().manual_seed(0),
    }  # fmt: skip
    if seconds := _seconds(pipeline):
        asked[seconds] = size[0] / pipeline.vae.config.sampling_rate
    else:
        asked |= {"height": size[0], "width": size[1], **dict.fromkeys(FRAMES, FRAME_COUNT)}
        pictures = images_needed(read_pipeline(type(pipeline).__name__))
        asked |= dict(zip(pictures, _sources(pipeline, (FRAME_COUNT, *size), len(pictures)), strict=True))
    asked |= {name: value for name, value in (settings or {}).items() if value is not None}
    taken = inspect.signature(pipeline.__call__).parameters
    return {name: value for name, value in asked.items() if name in taken}


def _seconds(pipeline: Any) -> str:
    """Return the argument for the length of a sound; empty for pipelines of pictures and films."""
    return seconds_of(read_pipeline(type(pipeline).__name__))


def films(pipeline: Any) -> bool:
    """Return whether a pipeline makes films."""
    return any(name in FRAMES for name in inspect.signature(pipeline.__call__).parameters)


def _deep(pipeline: Any) -> bool:
    """Return whether its autoencoder's convolutions go along frames."""
    return any(parameter.dim() == 5 for parameter in pipeline.vae.parameters())


@contextlib.contextmanager
def encoding(cls: type, encoded: list[torch.Tensor]) -> Iterator[None]:
    """Note what autoencoders of a class make, which is its mean, whether a sample is drawn or not."""
    right = cls.encode  # type: ignore[attr-defined]

    def encode(*args: Any, **kwargs: Any) -> Any:
        answer = right(*args, **kwargs)
        held = getattr(answer, "latent_dist", None) or answer[0]
        if hasattr(held, "mean") and not isinstance(held, torch.Tensor):
            held.std = held.var = torch.zeros_like(held.mean)
        encoded.append((held if isinstance(held, torch.Tensor) else held.mean).detach().clone())
        return answer

    with replaced(cls, "encode", encode):
        yield


def media(pipeline: Any, shapes: Sequence[Shape]) -> dict[str, Any]:
    """Return a sample of each shape, as the data pipeline passes them: pictures, or frames of bytes.

    Before a picture come those that the pipeline starts from; films start from their first frame. Sounds are files.
    """
    if _seconds(pipeline):
        return {"outputs": [_sound(length, pipeline.vae.config.sampling_rate) for (length,) in shapes]}
    made = [_frames(shape) for shape in shapes]
    if films(pipeline):
        return {"images": [[] for _ in made], "videos": [[torch.from_numpy(one).permute(3, 0, 1, 2)] for one in made]}
    count = len(images_needed(read_pipeline(type(pipeline).__name__)))
    images = [[*_sources(pipeline, shape, count), _still(one)] for shape, one in zip(shapes, made, strict=True)]
    return {"images": images, "videos": [[] for _ in made]}


def data_options(pipeline: Any, size: Size) -> Mapping[str, object]:
    """Return the options of a data maker for media that the pipeline draws for a size."""
    shape = drawn_shape(pipeline, size)
    if _seconds(pipeline):
        rate = pipeline.vae.config.sampling_rate
        return {"--seconds": shape[0] / rate, "--rate": rate}
    return {"--size": shape[1], "--frames": shape[0]}


def _sound(samples: int, rate: int) -> bytes:
    """Return a tone that fades out, as a file of 16 bits."""
    time = np.linspace(0, 1, samples)
    values = np.sin(40 * time) * np.exp(-2 * time) * 2**14
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setnchannels(1)
        made.setsampwidth(2)
        made.setframerate(rate)
        made.writeframes(values.astype("<i2").tobytes())
    return file.getvalue()


def _frames(shape: Shape) -> np.ndarray:
    """Waves that move: bytes [3, rows, columns, frames]."""
    count, rows, columns = shape
    x, y, t = np.meshgrid(np.linspace(0, 3, columns), np.linspace(0, 2, rows), np.linspace(0, 1, count))
    return ((np.stack([np.sin(x + t), np.cos(y - t), np.sin(x * y)]) + 1) * 127.5).astype(np.uint8)


def _sources(pipeline: Any, shape: Shape, count: int) -> list[Image.Image]:
    """Return the pictures that a pipeline starts from: of a film the first frame, of a picture others of that size."""
    first = _frames(shape)
    return [_still(first if films(pipeline) else np.roll(first, place + 1, axis=0)) for place in range(count)]


def _still(frames: np.ndarray) -> Image.Image:
    return Image.fromarray(frames[..., 0].transpose(1, 2, 0))


def _loaded(root: Path) -> Any:
    from diffusers import DiffusionPipeline

    pipeline = DiffusionPipeline.from_pretrained(root)
    pipeline.set_progress_bar_config(disable=True)
    if hasattr(pipeline, "vae"):
        let_decode(pipeline.vae)
    return pipeline
