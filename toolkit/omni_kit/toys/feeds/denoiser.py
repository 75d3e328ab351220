"""How a diffusion transformer is fed and what it answers, on either side.

A batch is a few samples of different sizes. Each is a call of its own, because the samples of real training differ in
resolution and length, and wrappers take them one at a time. In files a sample's tensors are called "0.hidden_states".
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from omni_kit.errors import BadInput
from omni_kit.toys.feeds.protocol import Batch, Run
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import shuffled_ramp

TARGET = "training_target"
_PREDICTION = "sample."
_COLOURS = 3
_SHAPES = "img_shapes"  # lists of (frames, rows, columns), one for each picture
# Frames, rows and columns of patches, and the length of the text. No two sizes of a sample are alike.
_GRIDS = ((3, 4, 2), (2, 5, 3))
_PICTURES = (((1, 4, 6),), ((1, 5, 3), (1, 2, 4)))  # the second sample has a picture as its condition
_TEXT = (9, 7)
_MASKED = (2, -1)  # a mask need not be a suffix
# Of a thousand steps. Exact in bfloat16 as they are and as sigmas, so that what is lost there is the model's.
_TIMESTEPS = (250, 812)
_SIGMAS = (0.25, 0.8125)
_SCALE = 2.0  # inputs as large as latents and embeddings are
_TEXT_WIDTHS = ("text_dim", "joint_attention_dim", "caption_channels", "cross_attention_dim", "text_embed_dim")


class DenoiserFeed:
    """Latents, times, text embeddings and targets for a diffusion transformer."""

    def batch(self, model: Any, run: Run) -> Tensors:
        """Two samples of different sizes; see `denoiser_inputs`."""
        return denoiser_inputs(model)

    def mask(self, batch: Tensors) -> torch.Tensor:
        """Every element of every sample counts."""
        return torch.ones(1, 1, dtype=torch.long)

    def judged(self, names: Sequence[str]) -> list[str]:
        """The predictions."""
        return [name for name in names if name.startswith(_PREDICTION)]

    def whole(self, batch: Tensors) -> list[Batch]:
        """Samples of an even and of an odd number of patches."""
        return [[[sample]] for sample in samples_of(batch)]

    def apart(self, batch: Tensors, count: int) -> list[Batch]:
        """The samples, and then again with the order of their channels turned."""
        return [[[sample] for sample in different_samples(batch, count)]]

    def frames(self, batch: Tensors, answers: Tensors) -> Mapping[str, torch.Tensor]:
        """The middle frame of each prediction, its first channels as colours."""
        return {
            name: _frame(answers[name], batch.get(f"{name.removeprefix(_PREDICTION)}.{_SHAPES}"))
            for name in sorted(self.judged(list(answers)))
        }


def _frame(sample: torch.Tensor, sizes: torch.Tensor | None) -> torch.Tensor:
    """The middle frame of the first channels, [rows, columns, 3]."""
    if sizes is not None:  # [1, patches, channels], the picture itself first
        frames, rows, columns = sizes[0, 0].tolist()
        grid = sample[0, : frames * rows * columns].reshape(frames, rows, columns, -1)
    else:  # [1, channels, frames, rows, columns]
        grid = sample[0].movedim(0, -1)
    return grid[len(grid) // 2, ..., :_COLOURS].float()


def denoiser_inputs(model: Any) -> Tensors:
    """Two samples for a diffusion transformer of diffusers, by the arguments that its forward names.

    Returns:
        For each sample, what forward takes, and `training_target`, of the shape of its answer: velocities.

    Raises:
        BadInput: forward wants something that there is no rule for.
    """
    inputs: Tensors = {}
    for index in range(len(_GRIDS)):
        sample = _sample(model, index)
        with torch.no_grad():
            shape = ask(model, _placed(sample, model)).shape
        sample[TARGET] = _SCALE * shuffled_ramp(f"denoiser {index} target", shape)
        inputs |= {f"{index}.{name}": tensor for name, tensor in sample.items()}
    return inputs


def samples_of(inputs: Tensors) -> list[Tensors]:
    """The samples of a batch."""
    found: dict[str, Tensors] = {}
    for key, tensor in inputs.items():
        index, _, name = key.partition(".")
        found.setdefault(index, {})[name] = tensor
    return [found[index] for index in sorted(found, key=int)]


def different_samples(inputs: Tensors, count: int) -> list[Tensors]:
    """As many samples as are wanted: those of the batch, and then again with the order of their channels turned."""
    samples = samples_of(inputs)
    turned = [{**one, **{name: one[name].flip(-1) for name in ("hidden_states", TARGET)}} for one in samples]
    return [*samples, *turned][:count]


def as_arguments(sample: Tensors) -> dict[str, Any]:
    """The arguments of forward: the tensors, and the sizes of pictures as lists."""
    return {
        name: [[tuple(size) for size in one] for one in value.tolist()] if name == _SHAPES else value
        for name, value in sample.items()
        if name != TARGET
    }


def ask(model: Any, sample: Tensors) -> torch.Tensor:
    """What a model of diffusers answers to a sample."""
    answer: torch.Tensor = model(**as_arguments(sample), return_dict=False)[0]
    return answer


def denoised(samples: Sequence[Tensors], answer: Callable[[Tensors], torch.Tensor]) -> Tensors:
    """What upstream gives for a batch, with the loss of flow matching, of which diffusers' models have none.

    Returns:
        sample.0, sample.1, ...: predictions; loss []: the mean over samples of the mean squared error, in float32.
    """
    predictions = [answer(sample) for sample in samples]
    errors = [
        (prediction.float() - sample[TARGET].float()).square().flatten(1).mean(1)
        for prediction, sample in zip(predictions, samples, strict=True)
    ]
    return named(predictions, torch.stack(errors).mean())


def named(predictions: Sequence[torch.Tensor], loss: torch.Tensor) -> Tensors:
    """Outputs under the names that both sides use."""
    return {**{f"{_PREDICTION}{index}": tensor for index, tensor in enumerate(predictions)}, "loss": loss}


def clean_latents(sample: Tensors) -> torch.Tensor | None:
    """What the noisy latents of a sample were made of, given its target; None where the two have other shapes."""
    noisy, target = sample["hidden_states"], sample[TARGET]
    time = sample["timestep"]
    sigma = time if time.is_floating_point() else time / 1000
    return noisy - sigma.to(noisy.dtype) * target if noisy.shape == target.shape else None


@dataclass(frozen=True)
class _Asked:
    """A sample to be made.

    Attributes:
        packed: pictures come as a row of patches with their sizes beside it, and times as sigmas.
    """

    config: Mapping[str, Any]
    index: int
    packed: bool


def _sample(model: Any, index: int) -> Tensors:
    signature = dict(inspect.signature(inspect.unwrap(type(model).forward)).parameters)
    signature.pop("self")
    asked = _Asked(model.config, index, _SHAPES in signature)
    given: Tensors = {}
    for name, parameter in signature.items():
        if (made := _RULES[name](asked) if name in _RULES else None) is not None:
            given[name] = made
        elif parameter.default is parameter.empty:
            raise BadInput(f"{type(model).__name__}.forward wants '{name}', for which there is no rule yet")
    return given


def _latents(asked: _Asked) -> torch.Tensor:
    """Latents [1, channels, frames, rows, columns] of whole patches, or [1, patches, channels]."""
    channels, patch = asked.config["in_channels"], asked.config["patch_size"]
    if asked.packed:
        patches = sum(math.prod(size) for size in _PICTURES[asked.index])
        return _values(asked, "latents", (1, patches, channels))
    if isinstance(patch, int):
        raise BadInput("there is no rule yet for latents of one picture that are not packed")
    sizes = [size * step for size, step in zip(_GRIDS[asked.index], patch, strict=True)]
    return _values(asked, "latents", (1, channels, *sizes))


def _time(asked: _Asked) -> torch.Tensor:
    return torch.tensor([_SIGMAS[asked.index] if asked.packed else _TIMESTEPS[asked.index]])


def _text(asked: _Asked) -> torch.Tensor:
    width = next(asked.config[key] for key in _TEXT_WIDTHS if asked.config.get(key))
    return _values(asked, "text", (1, _TEXT[asked.index], width))


def _mask(asked: _Asked) -> torch.Tensor:
    mask = torch.ones(1, _TEXT[asked.index], dtype=torch.bool)
    mask[:, _MASKED] = False
    return mask


def _condition(asked: _Asked) -> torch.Tensor | None:
    return torch.tensor([asked.index]) if asked.config["use_additional_t_cond"] else None


_RULES: Mapping[str, Callable[[_Asked], torch.Tensor | None]] = {
    "hidden_states": _latents,
    "timestep": _time,
    "encoder_hidden_states": _text,
    "encoder_hidden_states_mask": _mask,
    _SHAPES: lambda asked: torch.tensor([_PICTURES[asked.index]]),
    "additional_t_cond": _condition,
}


def _values(asked: _Asked, name: str, shape: Sequence[int]) -> torch.Tensor:
    return _SCALE * shuffled_ramp(f"denoiser {asked.index} {name}", tuple(shape))


def _placed(sample: Tensors, model: nn.Module) -> Tensors:
    device = next(model.parameters()).device
    return {name: tensor.to(device) for name, tensor in sample.items()}
