"""What both sides drew: a frame of each sample of a diffusion model, for people to look at side by side."""

import io

import torch

from omni_kit.parity.case import Case
from omni_kit.parity.report import Image
from omni_kit.targets.builder import Tensors

_COLOURS = 3
_PIXEL = 16  # edge of what stands for one latent


def drawn(case: Case) -> list[Image]:
    """The samples that both sides have given so far; also written beside the other results of each side."""
    if not isinstance(case.taken.get("ran"), list):
        return []
    found = images(case.inputs(), case.results("reference", "outputs"), case.results("candidate", "outputs"))
    for image in found:
        for side, png in (("reference", image.reference_png), ("candidate", image.candidate_png)):
            (case.where / side / f"{image.name}.png").write_bytes(png)
    return found


def images(inputs: Tensors, reference: Tensors, candidate: Tensors) -> list[Image]:
    """The samples among the outputs of both sides, in the range of values of the reference's.

    Args:
        inputs: the batch, for the sizes of samples that are rows of patches.
    """
    found = []
    for name in sorted(name for name in reference if name.startswith("sample.") and name in candidate):
        sizes = inputs.get(f"{name.removeprefix('sample.')}.img_shapes")
        if reference[name].shape == candidate[name].shape:
            frames = [_frame(side[name], sizes) for side in (reference, candidate)]
            low, high = frames[0].amin(), frames[0].amax()
            found.append(Image(name, *(_png((frame - low) / (high - low)) for frame in frames)))
    return found


def _frame(sample: torch.Tensor, sizes: torch.Tensor | None) -> torch.Tensor:
    """The middle frame of the first channels, [rows, columns, 3]."""
    if sizes is not None:  # [1, patches, channels], the picture itself first
        frames, rows, columns = sizes[0, 0].tolist()
        grid = sample[0, : frames * rows * columns].reshape(frames, rows, columns, -1)
    else:  # [1, channels, frames, rows, columns]
        grid = sample[0].movedim(0, -1)
    return grid[len(grid) // 2, ..., :_COLOURS].float()


def _png(frame: torch.Tensor) -> bytes:
    """A PNG file of values from 0 to 1; what is no number is black."""
    from PIL import Image

    pixels = (frame.nan_to_num(0.0).clamp(0, 1) * 255).round().to(torch.uint8)
    large = pixels.repeat_interleave(_PIXEL, 0).repeat_interleave(_PIXEL, 1)
    file = io.BytesIO()
    Image.fromarray(large.numpy()).save(file, "png")
    return file.getvalue()
