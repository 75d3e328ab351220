"""Inputs and outputs of a diffusion transformer, the same on either side.

A batch is a few samples of different sizes. Each is a call of its own, because the samples of real training differ in
resolution and length, and wrappers take them one at a time. In files a sample's tensors are called "0.hidden_states".

The rooms: `arguments` (names of tensors, and the arguments that they stand for), `samples` (batches and losses),
`layouts` (of noisy latents), `roles` (what an argument may be, by its name; each sort has a room of its own), `trial`
(which of it the model takes), `forward_code`, `failing_line` and `provenance` (what code and errors say of an
argument), `inputs` (all of it together).
"""

from omni_kit.renamed import old_names
from omni_kit.toys.batches.denoiser.arguments import TARGET, answer, as_arguments, ask, prediction_of
from omni_kit.toys.batches.denoiser.builder import DenoiserBatchBuilder
from omni_kit.toys.batches.denoiser.inputs import denoiser_inputs, long_inputs
from omni_kit.toys.batches.denoiser.samples import clean_latents, denoised, different_samples, named, samples_of

__all__ = [
    "TARGET",
    "DenoiserBatchBuilder",
    "answer",
    "as_arguments",
    "ask",
    "clean_latents",
    "denoised",
    "denoiser_inputs",
    "different_samples",
    "long_inputs",
    "named",
    "prediction_of",
    "samples_of",
]


__getattr__ = old_names(__name__, {"DenoiserFeed": "DenoiserBatchBuilder"})
