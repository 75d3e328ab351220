"""Casts against torch, bit by bit."""

import numpy as np
import pytest
import torch

from omni_kit.convert.casts import CASTS, cast, casts

DTYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    65504.0,
    65520.0,
    1e-8,
    3e38,
    -3e38,
    float("inf"),
    float("-inf"),
    1 + 2**-8,
    1 + 3 * 2**-8,
]


def bits(tensor: torch.Tensor) -> np.ndarray:
    kind = {2: torch.uint16, 4: torch.uint32, 8: torch.uint64}[tensor.element_size()]
    return np.asarray(tensor.view(kind).numpy())


@pytest.mark.parametrize("source", sorted(DTYPES))
@pytest.mark.parametrize("target", sorted(CASTS.values()))
def test_every_cast_is_torchs(source: str, target: str) -> None:
    torch.manual_seed(0)
    values = torch.cat([torch.tensor(SPECIAL), torch.randn(5000) * torch.logspace(-9, 9, 5000)]).to(DTYPES[source])
    assert (cast(bits(values), source, target) == bits(values.to(DTYPES[target]))).all()


@pytest.mark.parametrize("target", sorted(CASTS.values()))
def test_nan_stays_nan(target: str) -> None:
    found = cast(bits(torch.tensor([float("nan"), -float("nan")])), "F32", target)
    assert torch.from_numpy(found).view(DTYPES[target]).isnan().all()


def test_a_nan_whose_low_bits_round_up_stays_nan() -> None:
    assert cast(np.array([0x7FFFFFFF, 0xFFFFFFFF], np.uint32), "F32", "BF16").tolist() == [0x7FFF, 0xFFFF]


def test_the_same_dtype_keeps_the_bits() -> None:
    given = np.array([0x7FC1, 1, 0xFFFF], np.uint16)
    assert cast(given, "BF16", "BF16") is given


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F32", "F64"])
def test_weights_are_cast(dtype: str) -> None:
    assert casts("model.layers.0.mlp.experts.gate_up_proj", dtype, buffer=False)


@pytest.mark.parametrize(
    ("name", "dtype", "buffer"),
    [
        ("position_ids", "I64", False),
        ("mask", "BOOL", False),
        ("q_proj.weight", "F8_E4M3", False),
        ("q_proj.weight_blocks", "U8", False),
        ("q_proj.weight_scale_inv", "F32", False),
        ("q_proj.weight_scale", "BF16", False),
        ("mlp.gate.e_score_correction_bias", "F32", False),
        ("feed_forward.expert_bias", "F32", False),
        ("rotary.inv_freq", "F32", True),
    ],
)
def test_integers_scales_and_routing_are_not(name: str, dtype: str, buffer: bool) -> None:
    assert not casts(name, dtype, buffer)
