"""Samples of a batch, and results computed from their outputs."""

from collections.abc import Callable, Sequence

import torch

from omni_kit.toys.batches.denoiser.arguments import TARGET
from omni_kit.toys.tensors import Tensors

PREDICTION = "sample."
_NOISY = "hidden_states"


def samples_of(inputs: Tensors) -> list[Tensors]:
    """Return the samples of a batch."""
    found: dict[str, Tensors] = {}
    for key, tensor in inputs.items():
        index, _, name = key.partition(".")
        found.setdefault(index, {})[name] = tensor
    return [found[index] for index in sorted(found, key=int)]


def different_samples(inputs: Tensors, count: int) -> list[Tensors]:
    """Return `count` samples: those of the batch, then the same with reversed channels."""
    samples = samples_of(inputs)
    turned = [{**one, **{name: one[name].flip(-1) for name in (noisy_name(one), TARGET)}} for one in samples]
    return [*samples, *turned][:count]


def noisy_name(sample: Tensors) -> str:
    """Return the name of a sample's noisy latents: the usual one, the one with the output's shape, or the largest."""
    if _NOISY in sample:
        return _NOISY
    given = {name: one for name, one in sorted(sample.items()) if name != TARGET}
    found = {name: one for name, one in given.items() if one.is_floating_point()} or given  # words have numbers alone
    alike = (name for name, one in found.items() if one.shape == sample[TARGET].shape)
    return next(alike, max(found, key=lambda name: found[name].numel()))


def denoised(samples: Sequence[Tensors], answer: Callable[[Tensors], torch.Tensor]) -> Tensors:
    """Return upstream's outputs for a batch, with a flow-matching loss, which diffusers' models do not compute.

    Returns:
        sample.0, sample.1, ...: predictions; loss []: the mean over samples of the mean squared error, in float32.
    """
    predictions = [answer(sample) for sample in samples]
    errors = [
        (prediction.float() - sample[TARGET].float()).square().flatten(1).mean(1)
        for prediction, sample in zip(predictions, samples, strict=True)
    ]
    return named(predictions, torch.stack([error.mean() for error in errors]).mean())


def named(predictions: Sequence[torch.Tensor], loss: torch.Tensor) -> Tensors:
    """Return outputs under the names that both sides use."""
    return {**{f"{PREDICTION}{index}": tensor for index, tensor in enumerate(predictions)}, "loss": loss}


def clean_latents(sample: Tensors) -> torch.Tensor | None:
    """Return the clean latents of a sample, given its target; None if the shapes differ."""
    noisy, target = sample[noisy_name(sample)], sample[TARGET]
    time = sample.get("timestep")
    if time is None or noisy.shape != target.shape:
        return None
    sigma = time if time.is_floating_point() else time / 1000
    return noisy - sigma.to(noisy.dtype) * target
