"""The batch of a comparison cut up for several processes: one part for each of those that see different data."""

from collections.abc import Sequence
from pathlib import Path

from omni_kit.parity import denoiser
from omni_kit.parity.media import samples_of
from omni_kit.parity.tensors import load_tensors, save_tensors
from omni_kit.targets.builder import Batch, Tensors

_BY_TOKEN = ("input_ids", "attention_mask", "labels", "mm_token_type_ids")
_WHOLE = 4  # a length that 2 and 4 processes share without padding


def even_and_odd(inputs: Tensors) -> list[Batch]:
    """Two batches of one part with all samples: a number of tokens that 4 divides, and an odd one."""
    if "input_ids" not in inputs:  # no tokens: samples of an even and of an odd number of patches
        return [[[sample]] for sample in denoiser.samples_of(inputs)]
    samples = samples_of(inputs)
    surplus = sum(sample["input_ids"].shape[1] for sample in samples) % _WHOLE
    return [[[*samples[:-1], _shortened(samples[-1], drop)]] for drop in (surplus, surplus + 1)]


def one_a_rank(inputs: Tensors, count: int) -> list[Batch]:
    """One batch of `count` parts with a sample each, no two alike: whole ones, and between them ones of text alone."""
    if "input_ids" not in inputs:
        return [[[sample] for sample in denoiser.different_samples(inputs, count)]]
    samples = samples_of(inputs)
    texts = [_text_alone(sample) for sample in samples]
    mixed = [sample for pair in zip(samples, texts, strict=True) for sample in pair]
    return [[[sample] for sample in mixed[:count]]]


def _shortened(sample: Tensors, drop: int) -> Tensors:
    """Without its last tokens, which are text."""
    length = sample["input_ids"].shape[1] - drop
    return {name: tensor[:, :length] if name in _BY_TOKEN else tensor for name, tensor in sample.items()}


def _text_alone(sample: Tensors) -> Tensors:
    """The tokens that have a label or come first, without any media."""
    kept = sample["labels"][0] != -100
    kept[0] = True
    return {name: sample[name][:, kept] for name in _BY_TOKEN if name in sample}


def save_batches(batches: Sequence[Batch], directory: Path) -> None:
    """Writes each sample to a file of its own."""
    for b, batch in enumerate(batches):
        for p, part in enumerate(batch):
            for s, sample in enumerate(part):
                save_tensors(sample, directory / str(b) / str(p) / f"{s}.safetensors")


def load_batches(directory: Path) -> list[Batch]:
    """What `save_batches` wrote."""
    return [
        [[load_tensors(file) for file in sorted(part.iterdir())] for part in sorted(batch.iterdir())]
        for batch in sorted(directory.iterdir())
    ]
