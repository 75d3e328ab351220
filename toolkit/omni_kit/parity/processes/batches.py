"""Batches in files: how the processes of a launch get their parts."""

from collections.abc import Sequence
from pathlib import Path

from omni_kit.parity.compare.files import load_tensors, save_tensors
from omni_kit.toys.batches.protocol import Batch


def save_batches(batches: Sequence[Batch], directory: Path) -> None:
    """Write each sample to a file of its own."""
    for b, batch in enumerate(batches):
        for p, part in enumerate(batch):
            for s, sample in enumerate(part):
                save_tensors(sample, directory / f"{b:03d}" / str(p) / f"{s}.safetensors")


def load_batches(directory: Path) -> list[Batch]:
    """Read the batches that `save_batches` wrote."""
    return [
        [[load_tensors(file) for file in sorted(part.iterdir())] for part in sorted(batch.iterdir())]
        for batch in sorted(directory.iterdir())
    ]
