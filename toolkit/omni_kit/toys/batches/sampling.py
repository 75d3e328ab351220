"""The batch builder of a denoiser's sampling: noise, text and negative embeddings, steps and a guidance scale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from omni_kit.errors import BadInput
from omni_kit.toys.batches.denoiser.arguments import PLAIN, TARGET
from omni_kit.toys.batches.denoiser.inputs import denoiser_inputs
from omni_kit.toys.batches.denoiser.samples import samples_of
from omni_kit.toys.batches.denoiser.sizes import ARGUMENTS
from omni_kit.toys.batches.protocol import Batch, Run
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import shuffled_ramp
from omni_kit.upstream.repositories.packing import latents_shape
from omni_kit.upstream.repositories.recorded import (
    CONDITIONS,
    COUNT,
    FRAME_AXIS,
    JOINED,
    MIXED,
    NEGATIVE,
    NULL,
    PROMPT_AXIS,
    STEPS,
)
from omni_kit.upstream.repositories.recorded import LATENTS as PACKED

NAMES = "_arguments"
"""Of a toy's config: what authors call an argument of forward -> what it is called where the model is integrated."""
LATENTS, TEXT, LABELS = "hidden_states", "encoder_hidden_states", "class_labels"
_NUMBERS = "numbers"
_CONDITION = "condition "
_SCALE = 4.0
_SPREAD = 2.0
SCALING, SHIFT = 0.5, 16.0
"""Of the autoencoder: latents are what it encodes, less the shift, times the scaling.

The shift shows next to latents of some ten thousands, too: an untrained model draws such ones along unscaled sigmas.
"""


@dataclass(frozen=True)
class Drawn:
    """One run of a sampler.

    Attributes:
        noise: [pictures, channels, rows, columns].
        text, against: [pictures, tokens, width]; the pictures of a prompt lie side by side. Class labels are
            [pictures], whole numbers.
        scale: of guidance; 1 for none.
        prompts: how many there are; with several, each has as many pictures.
        decoded: what receives to the autoencoder is asked for, and not the latents.
        conditions: what else the model is passed, by the authors' names; `negative_` for what is guided against.
    """

    name: str
    noise: torch.Tensor
    text: torch.Tensor
    against: torch.Tensor
    steps: int
    scale: float
    prompts: int = 1
    decoded: bool = False
    conditions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def each(self) -> int:
        """Return the number of images of a prompt."""
        return len(self.noise) // self.prompts

    def answer(self, latents: torch.Tensor) -> torch.Tensor:
        """Return the requested output of the sampled latents."""
        return latents / SCALING + SHIFT if self.decoded else latents


def drawn_of(batch: Tensors) -> list[Drawn]:
    """The runs of a batch."""
    found = []
    for one in samples_of(batch):
        steps, scale, prompts, decoded = one[_NUMBERS].tolist()
        size = "x".join(map(str, one["noise"].shape))
        more = (f" {int(prompts)} prompts" if prompts > 1 else "") + (" decoded" if decoded else "")
        name = f"{'guided' if scale > 1 else 'plain'} {size}{more}"
        found.append(
            Drawn(
                name,
                one["noise"],
                one["text"],
                one["against"],
                int(steps),
                scale,
                int(prompts),
                bool(decoded),
                dict(_given(key, value) for key, value in one.items() if key.startswith(_CONDITION)),
            )
        )
    return found


def _given(key: str, value: torch.Tensor) -> tuple[str, Any]:
    """Return a condition by its name: a tensor, or plain numbers."""
    return key.removeprefix(_CONDITION).removesuffix(PLAIN), value.tolist() if key.endswith(PLAIN) else value


class SamplingBatchBuilder:
    """Of two sizes, with and without guidance, two pictures at once, two of each of two prompts, and one decoded."""

    def batch(self, model: Any, run: Run) -> Tensors:
        """Return a run for each.

        Raises:
            BadInput: the model does not say which of its arguments are latents and an embedded text.
        """
        names = getattr(model, ARGUMENTS, {}).get(NAMES, {})
        latents, text = (next((old for old, new in names.items() if new in wanted), "")
                         for wanted in ((LATENTS,), (LABELS, TEXT)))  # fmt: skip
        null = getattr(model, ARGUMENTS, {}).get(NULL)
        axis = getattr(model, ARGUMENTS, {}).get(PROMPT_AXIS)
        samples = [_joined(_joined(one, latents), text) for one in samples_of(denoiser_inputs(model))]
        if not samples or latents not in samples[0] or (text and text not in samples[0] and null is None):
            raise BadInput(f"no argument of {type(model).__name__} is known to be {LATENTS}, {LABELS} or {TEXT}")
        packed = getattr(model, ARGUMENTS, {}).get(PACKED)
        alike = [one[TARGET].shape == one[latents].shape if TARGET in one else False for one in samples]
        if alike == [True, False]:  # a U-Net's answer may be longer: nothing can be sampled at that size
            samples = samples[:1] * len(samples)
        without = torch.zeros(1, 1, 1)  # of a model that receives neither labels nor a prompt

        def condition(sample: Tensors) -> torch.Tensor | int:
            value = null if null is not None else sample[text] if text else without
            return value.squeeze(axis) if isinstance(value, torch.Tensor) and axis is not None else value

        frame, joined = (getattr(model, ARGUMENTS, {}).get(one) for one in (FRAME_AXIS, JOINED))

        def begun(sample: Tensors) -> torch.Tensor:
            tokens = sample[latents].select(frame, 0) if frame else sample[latents]
            if joined and TARGET in sample:
                tokens = tokens.narrow(joined["axis"], 0, sample[TARGET].shape[joined["axis"]])
            return tokens.new_empty(latents_shape(tokens.shape, packed[1])) if packed else tokens

        runs = [(0, 1, 1.0, 1), (0, 1, _SCALE, 1), (1, 1, _SCALE, 1), (0, 2, _SCALE, 1), (0, 4, _SCALE, 2)]
        drawn = [
            _run(begun(samples[sample]), condition(samples[sample]), pictures, scale, prompts)
            for sample, pictures, scale, prompts in [*runs, (0, 1, 1.0, 1)]
        ]
        for one in drawn:
            one[_NUMBERS][0] = getattr(model, ARGUMENTS, {}).get(COUNT, STEPS)
        drawn[-1][_NUMBERS][-1] = 1.0  # what is decoded
        more = getattr(model, ARGUMENTS, {}).get(CONDITIONS, {})
        for (sample, *_), one in zip([*runs, runs[0]], drawn, strict=True):
            one |= _conditions(samples[sample], more, latents, len(one["noise"]))
            one |= _mixed(one["noise"], getattr(model, ARGUMENTS, {}).get(MIXED)) if one is not drawn[0] else {}
            one |= _beside(one["noise"], samples[sample][latents], joined) if joined else {}
        return {f"{number}.{name}": tensor for number, run in enumerate(drawn) for name, tensor in run.items()}

    def mask(self, batch: Tensors) -> torch.Tensor:
        """Every element counts."""
        return torch.ones(1, 1, dtype=torch.long)

    def judged(self, names: Sequence[str]) -> list[str]:
        """Return all outputs."""
        return list(names)

    def whole(self, batch: Tensors) -> list[Batch]:
        """Return each run alone: sampling is not trained."""
        return [[[one]] for one in samples_of(batch)]

    def apart(self, batch: Tensors, count: int) -> list[Batch]:
        """Return as many runs as there are parts."""
        runs = samples_of(batch)
        return [[[runs[number % len(runs)]] for number in range(count)]]

    def frames(self, batch: Tensors, answers: Tensors) -> Mapping[str, torch.Tensor]:
        """Latents are no pictures."""
        return {}


def _joined(sample: Tensors, name: str) -> Tensors:
    """Return a sample with this argument in one tensor, also where the model was passed a list of them."""
    listed = [one for key, one in sample.items() if key.startswith(f"{name}[") and key.endswith("]")]
    alike = name and name not in sample and listed and all(one.shape == listed[0].shape for one in listed)
    return {**sample, name: torch.stack(listed)} if alike else sample


def _conditions(sample: Tensors, wanted: Mapping[str, bool], latents: str, pictures: int) -> Tensors:
    """Make the other inputs of the model; a tensor with a row for each picture gets as many as there are pictures."""
    found = {}
    for given, negative in wanted.items():
        name = given if given in sample else f"{given}{PLAIN}"
        if name not in sample:
            continue
        value, rows = sample[name], len(sample[latents])
        apart = value.dim() > 0 and len(value) == rows
        found[f"{_CONDITION}{name}"] = value[torch.arange(pictures) % rows] if apart else value
        if negative:
            other = -value if value.is_floating_point() else value
            found[f"{_CONDITION}{NEGATIVE}{name}"] = other[torch.arange(pictures) % rows] if apart else other
    return found


def _beside(noise: torch.Tensor, whole: torch.Tensor, joined: Mapping[str, Any]) -> Tensors:
    """Make what is joined with noise: along the axis as wide as the rest of the model's input, in equal parts."""
    axis, names = joined["axis"], [*filter(None, joined["parts"])]
    width = (whole.shape[axis] - noise.shape[axis]) // len(names)
    size = torch.Size([width if at == axis else one for at, one in enumerate(noise.shape)])
    return {f"{_CONDITION}{name}": shuffled_ramp(f"sampling {name}", size) for name in names}


def _mixed(noise: torch.Tensor, mixed: Sequence[str] | None) -> Tensors:
    """Make the known values and the mask that are mixed with latents, as large as these."""
    if not mixed:
        return {}
    known, mask = mixed
    places = (torch.arange(noise.numel()) % 3 == 0).to(noise).reshape(noise.shape)
    return {f"{_CONDITION}{known}": shuffled_ramp(f"sampling {known}", noise.shape), f"{_CONDITION}{mask}": places}


def _run(latents: torch.Tensor, text: torch.Tensor | int, pictures: int, scale: float, prompts: int) -> Tensors:
    """Return a run with an embedded text like this one, or with labels below this one, which is that of no class."""

    def made(name: str, like: torch.Tensor, count: int) -> torch.Tensor:
        return _SPREAD * shuffled_ramp(f"sampling {name}", torch.Size([count, *like.shape[1:]]))

    def told(name: str) -> torch.Tensor:
        rows = prompts if prompts > 1 else pictures
        if isinstance(text, int):
            labels = torch.arange(rows) % max(text, 1) if name == "text" else torch.full((rows,), text)
            return labels.repeat_interleave(pictures // rows, 0)
        return made(name, text, rows).repeat_interleave(pictures // rows, 0)

    return {
        "noise": made("noise", latents, pictures), "text": told("text"), "against": told("against"),
        _NUMBERS: torch.tensor([0.0, scale, prompts, 0.0]),
    }  # fmt: skip
