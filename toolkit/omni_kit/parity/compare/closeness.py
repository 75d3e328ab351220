"""Similarity of two images in familiar units: PSNR and SSIM."""

import math
from collections.abc import Mapping

import torch
from torch.nn.functional import avg_pool2d

_WINDOW = 7
_K1, _K2 = 0.01, 0.03  # Wang et al., Image quality assessment: from error visibility to structural similarity, 2004


def closeness(reference: Mapping[str, torch.Tensor], candidate: Mapping[str, torch.Tensor]) -> str:
    """Return the worst PSNR and SSIM of all pictures, each [rows, columns, 3], as the end of a sentence; empty without
    any.
    """
    pairs = [(one, candidate[name]) for name, one in reference.items() if name in candidate]
    pairs = [(one.float(), other.float()) for one, other in pairs if one.shape == other.shape]
    if not pairs:
        return ""
    return (
        f"; pictures: PSNR {min(psnr(*pair) for pair in pairs):.1f} dB, SSIM {min(ssim(*pair) for pair in pairs):.4f}"
    )


def psnr(reference: torch.Tensor, candidate: torch.Tensor) -> float:
    """Peak signal-to-noise ratio in dB, the peak being the range of the reference's values; infinite where equal."""
    error = float((reference - candidate).square().mean())
    return math.inf if error == 0 else 10 * math.log10(_range(reference) ** 2 / error)


def ssim(reference: torch.Tensor, candidate: torch.Tensor) -> float:
    """Mean structural similarity in windows of 7 x 7 of each channel; 1 where equal, about 0 against noise."""
    one, other = (picture.movedim(-1, 0)[None] for picture in (reference, candidate))
    window = min(_WINDOW, *one.shape[-2:])

    def mean(values: torch.Tensor) -> torch.Tensor:
        return avg_pool2d(values, window, stride=1)

    c1, c2 = (_K1 * _range(reference)) ** 2, (_K2 * _range(reference)) ** 2
    a, b = mean(one), mean(other)
    va, vb, vab = mean(one * one) - a * a, mean(other * other) - b * b, mean(one * other) - a * b
    found = (2 * a * b + c1) * (2 * vab + c2) / ((a * a + b * b + c1) * (va + vb + c2))
    return float(found.mean())


def _range(reference: torch.Tensor) -> float:
    return float(reference.max() - reference.min()) or 1.0
