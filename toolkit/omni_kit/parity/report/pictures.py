"""Pictures that both sides drew, side by side."""

import io

import torch

from omni_kit.parity.case import Case
from omni_kit.parity.processes.outcomes import CANDIDATE, REFERENCE
from omni_kit.parity.report.report import Image
from omni_kit.toys.batches.protocol import BatchBuilder
from omni_kit.toys.tensors import Tensors

_PIXEL = 16  # edge of what stands for one value


def drawn(case: Case) -> list[Image]:
    """Return the pictures that both sides have given so far; also written next to the other results of each side."""
    if not isinstance(case.pair.taken.get("ran"), list):
        return []
    outputs = (case.pair.results_of(side, "outputs") for side in (REFERENCE, CANDIDATE))
    found = images(case.batch_builder, case.pair.inputs(), *outputs)
    for image in found:
        for side, png in ((REFERENCE, image.reference_png), (CANDIDATE, image.candidate_png)):
            (case.pair.folder(side) / f"{image.name}.png").write_bytes(png)
    return found


def images(batch_builder: BatchBuilder, batch: Tensors, reference: Tensors, candidate: Tensors) -> list[Image]:
    """The answers that can be looked at, in the range of values of the reference's."""
    alike = {name: t for name, t in candidate.items() if name in reference and t.shape == reference[name].shape}
    theirs = batch_builder.frames(batch, {name: reference[name] for name in alike})
    mine = batch_builder.frames(batch, alike)
    found = []
    for name, frame in theirs.items():
        low, high = frame.amin(), frame.amax()
        found.append(Image(name, *(_png((one - low) / (high - low)) for one in (frame, mine[name]))))
    return found


def _png(frame: torch.Tensor) -> bytes:
    """Return a PNG file of values from 0 to 1; what is no number is black."""
    from PIL import Image

    pixels = (frame.nan_to_num(0.0).clamp(0, 1) * 255).round().to(torch.uint8)
    large = pixels.repeat_interleave(_PIXEL, 0).repeat_interleave(_PIXEL, 1)
    file = io.BytesIO()
    Image.fromarray(large.numpy()).save(file, "png")
    return file.getvalue()
