"""Float32 rounding of the tables of a diffusion process."""

import numpy as np
import pytest
import torch

from omni_kit.targets.references.samplers import SamplerBuilder
from omni_kit.targets.sides import Tabulating


def test_products_are_as_a_scheduler_holds_them() -> None:
    kept = 1.0 - np.linspace(1e-4, 0.02, 1000)
    exact = np.cumprod(kept, axis=0)

    builder = SamplerBuilder()
    assert isinstance(builder, Tabulating)
    with builder.rounded_tables():
        rounded = np.cumprod(kept, axis=0)
        of_tensors = torch.cumprod(torch.from_numpy(kept), dim=0)

    assert rounded.dtype == np.float64
    assert np.array_equal(rounded, rounded.astype(np.float32))
    assert np.array_equal(of_tensors.numpy(), rounded)
    lost = np.abs(rounded - exact)
    assert 0 < lost.max() < 2**-22
    assert lost[0] / (1 - exact[0]) == pytest.approx(6e-4, abs=6e-4)  # what is left of 1 - product has four digits less


def test_products_are_exact_elsewhere() -> None:
    exact = np.cumprod, torch.cumprod
    with pytest.raises(RuntimeError), SamplerBuilder().rounded_tables():
        raise RuntimeError

    assert (np.cumprod, torch.cumprod) == exact
