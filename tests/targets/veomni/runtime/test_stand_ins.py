"""The torch kernels that stand in for VeOmni's: right, sequence by sequence, and never silent."""

import pytest
import torch
from torch import nn

from omni_kit.targets.veomni.runtime.stand_ins import causal_conv1d, chunk_gated_delta_rule, stand_ins_used


@pytest.fixture(autouse=True)
def fresh() -> None:
    stand_ins_used()


def values(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def test_a_token_sees_itself_and_those_before_it() -> None:
    x, weight = values(1, 9, 6), values(6, 4)
    changed = x.clone()
    changed[0, 5] += 1

    before, after = causal_conv1d(x, weight)[0], causal_conv1d(changed, weight)[0]

    moved = (before != after).any(-1)[0]
    assert moved.tolist() == [False] * 5 + [True] * 4


def test_it_is_the_convolution_that_upstream_computes() -> None:
    x, bias = values(1, 9, 6), values(6)
    conv = nn.Conv1d(6, 6, 4, groups=6, padding=3)
    with torch.no_grad():
        conv.bias.copy_(bias)  # type: ignore[union-attr]
        expected = nn.functional.silu(conv(x.transpose(1, 2))[..., :9]).transpose(1, 2)

        found = causal_conv1d(x, conv.weight.squeeze(1), bias, activation="silu", seq_idx=None, backend="triton")[0]

    assert torch.allclose(found, expected, atol=1e-6)


def test_packed_sequences_do_not_see_each_other() -> None:
    x, weight = values(1, 9, 6), values(6, 4)
    bounds = torch.tensor([0, 4, 9])

    packed = causal_conv1d(x, weight, cu_seqlens=bounds)[0]
    apart = torch.cat([causal_conv1d(x[:, :4], weight)[0], causal_conv1d(x[:, 4:], weight)[0]], dim=1)

    assert torch.equal(packed, apart)
    assert not torch.equal(packed, causal_conv1d(x, weight)[0])


def test_the_delta_rule_runs_sequence_by_sequence() -> None:
    query, key, value = values(1, 9, 2, 4), values(1, 9, 2, 4) + 0.1, values(1, 9, 2, 6)
    decay, rate = -values(1, 9, 2).abs(), values(1, 9, 2).sigmoid()

    def run(part: slice, bounds: torch.Tensor | None = None) -> torch.Tensor:
        q, k, v, g, beta = (tensor[:, part] for tensor in (query, key, value, decay, rate))
        return chunk_gated_delta_rule(q, k, v, g, beta, bounds, initial_state=None, use_qk_l2norm_in_kernel=True)[0]

    packed = run(slice(None), torch.tensor([0, 4, 9]))

    assert packed.shape == value.shape
    assert torch.equal(packed, torch.cat([run(slice(0, 4)), run(slice(4, 9))], dim=1))


def test_use_is_told_once() -> None:
    causal_conv1d(values(1, 3, 2), values(2, 2))

    assert "causal_conv1d" in stand_ins_used()[0]
    assert stand_ins_used() == []
