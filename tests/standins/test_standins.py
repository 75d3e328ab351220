"""Stand-ins do what plain torch does; test_packages.py compares them with the packages."""

import importlib
from pathlib import Path

import pytest
import torch
from diffusers.models.attention_processor import Attention
from torch import nn

from omni_kit.standins import ROOT, einx, stand_ins
from omni_kit.standins.einops_exts import check_shape, rearrange_many, reduce_many, repeat_many
from omni_kit.standins.flash_attn import flash_attn_func, flash_attn_qkvpacked_func, flash_attn_varlen_func
from omni_kit.standins.flash_attn.bert_padding import pad_input, unpad_input
from omni_kit.standins.flash_attn.flash_attention import FlashAttention, FlashMHA
from omni_kit.standins.flash_attn.layers.rotary import (
    apply_rotary_emb,
    apply_rotary_emb_kv_,
    apply_rotary_emb_qkv_,
    apply_rotary_emb_torch,
)
from omni_kit.standins.flash_attn.modules.mha import FlashCrossAttention, FlashSelfAttention
from omni_kit.standins.liger_kernel.ops.rms_norm import LigerRMSNormFunction
from omni_kit.standins.liger_kernel.ops.rope import LigerRopeFunction
from omni_kit.standins.mmengine import Registry
from omni_kit.standins.torchdiffeq import odeint
from omni_kit.standins.xformers.ops import LowerTriangularMask, fmha, memory_efficient_attention, unbind
from omni_kit.standins.xfuser.core.distributed import get_sequence_parallel_rank, get_sequence_parallel_world_size
from omni_kit.standins.xfuser.core.long_ctx_attention import xFuserLongContextAttention
from omni_kit.upstream.repositories.names import in_stand_ins


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of scaled products, times values; [B, N, heads, width]."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    weights = (scores if mask is None else scores + mask).softmax(dim=-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


@pytest.fixture
def qkv() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 5, 3, 8), torch.randn(2, 5, 3, 8), torch.randn(2, 5, 3, 8)


def test_flash_attention_is_attention(qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    torch.testing.assert_close(flash_attn_func(*qkv), attended(*qkv))
    torch.testing.assert_close(flash_attn_qkvpacked_func(torch.stack(qkv, dim=2)), attended(*qkv))
    torch.testing.assert_close(FlashSelfAttention()(torch.stack(qkv, dim=2)), attended(*qkv))
    torch.testing.assert_close(FlashCrossAttention()(qkv[0], torch.stack(qkv[1:], dim=2)), attended(*qkv))


def test_attention_that_processes_share_is_attention_in_one(qkv: tuple[torch.Tensor, ...]) -> None:
    assert (get_sequence_parallel_world_size(), get_sequence_parallel_rank()) == (1, 0)
    torch.testing.assert_close(xFuserLongContextAttention()(None, *qkv), attended(*qkv))
    more = dict(zip(("joint_tensor_query", "joint_tensor_key", "joint_tensor_value"), qkv, strict=True))
    found = xFuserLongContextAttention()(None, *qkv, **more, joint_strategy="rear")
    torch.testing.assert_close(found, attended(*(torch.cat([one, one], dim=1) for one in qkv)))


def test_the_last_query_of_causal_attention_sees_every_key(qkv: tuple[torch.Tensor, ...]) -> None:
    q, k, v = qkv
    mask = torch.full((3, 5), float("-inf")).triu(3)
    torch.testing.assert_close(flash_attn_func(q[:, :3], k, v, causal=True), attended(q[:, :3], k, v, mask))


def test_samples_of_several_lengths_see_themselves_alone(qkv: tuple[torch.Tensor, ...]) -> None:
    q, k, v = (one[0] for one in qkv)
    ends = torch.tensor([0, 2, 5], dtype=torch.int32)
    found = flash_attn_varlen_func(q, k, v, ends, ends, 3, 3)
    for start, end in ((0, 2), (2, 5)):
        torch.testing.assert_close(found[start:end], attended(*(one[None, start:end] for one in (q, k, v)))[0])


def test_padding_comes_back_as_zeros() -> None:
    x, mask = torch.randn(2, 4, 3), torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]])
    tokens, indices, ends, longest = unpad_input(x, mask)
    assert (ends.tolist(), longest) == ([0, 2, 5], 3)
    torch.testing.assert_close(pad_input(tokens, indices, 2, 4), x * mask[..., None])


def test_modules_of_version_1_attend_and_return_no_weights(qkv: tuple[torch.Tensor, ...]) -> None:
    packed, mask = torch.stack(qkv, dim=2), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    x, weights = FlashAttention()(packed)
    assert weights is None
    torch.testing.assert_close(x, attended(*qkv))
    x, _ = FlashAttention()(packed, key_padding_mask=mask)
    torch.testing.assert_close(x[1, :3], attended(*(one[1:, :3] for one in qkv))[0])
    assert not x[1, 3:].any()
    ends = torch.tensor([0, 5, 10], dtype=torch.int32)
    torch.testing.assert_close(FlashAttention()(packed.flatten(0, 1), cu_seqlens=ends)[0], attended(*qkv).flatten(0, 1))
    mha, other = FlashMHA(12, 3), nn.MultiheadAttention(12, 3, batch_first=True)
    names = {"in_proj_": "Wqkv.", "out_proj": "out_proj"}
    new = {
        next(name.replace(a, b) for a, b in names.items() if a in name): one for name, one in other.state_dict().items()
    }
    mha.load_state_dict(new)
    rows = torch.randn(2, 5, 12)
    torch.testing.assert_close(mha(rows)[0], other(rows, rows, rows)[0])


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_positions_of_flash_attention_turn_pairs(interleaved: bool) -> None:
    x, angles = torch.randn(2, 5, 3, 10), torch.randn(7, 4)
    pairs = x[..., :8].reshape(2, 5, 3, *((4, 2) if interleaved else (2, 4)))
    first, second = pairs.unbind(-1 if interleaved else -2)
    turned = torch.complex(first, second) * torch.polar(torch.ones(5, 4), angles[2:])[:, None]
    expected = torch.cat(
        (torch.stack((turned.real, turned.imag), -1 if interleaved else -2).flatten(-2), x[..., 8:]), -1
    )
    cos, sin = angles.cos(), angles.sin()
    found = apply_rotary_emb(x, cos, sin, interleaved=interleaved, seqlen_offsets=2)
    torch.testing.assert_close(found, expected)
    qkv, kv = (torch.stack([x] * count, dim=2) for count in (3, 2))
    assert apply_rotary_emb_qkv_(qkv, cos, sin, interleaved=interleaved, seqlen_offsets=2) is qkv
    assert apply_rotary_emb_kv_(kv, cos, sin, interleaved=interleaved, seqlen_offsets=2) is kv
    torch.testing.assert_close(qkv, torch.stack([expected, expected, x], dim=2))
    torch.testing.assert_close(kv, torch.stack([expected, x], dim=2))


def test_slices_of_xformers_share_memory() -> None:
    whole = torch.arange(6).view(2, 3)
    first, second = unbind(whole, 0)
    assert first.tolist() == [0, 1, 2]
    assert second.data_ptr() == whole[1].data_ptr()


def test_masks_of_xformers_hide_what_they_say(qkv: tuple[torch.Tensor, ...]) -> None:
    q, k, v = qkv
    hidden = torch.full((5, 5), float("-inf"))
    torch.testing.assert_close(
        memory_efficient_attention(q, k, v, attn_bias=LowerTriangularMask()), attended(q, k, v, hidden.triu(1))
    )
    blocks = hidden.clone()
    blocks[:2, :2] = blocks[2:, 2:] = 0
    bias = fmha.BlockDiagonalMask.from_seqlens([2, 3])
    torch.testing.assert_close(memory_efficient_attention(q, k, v, attn_bias=bias), attended(q, k, v, blocks))


def test_a_registry_makes_what_a_config_names() -> None:
    models = Registry("models")

    @models.register_module()
    class Lamp:
        def __init__(self, watts: int) -> None:
            self.watts = watts

    assert models.build({"type": "Lamp", "watts": 40}).watts == 40
    assert models.get("Candle") is None


def test_every_module_can_be_imported_and_every_package_is_found() -> None:
    for file in ROOT.rglob("*.py"):
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name != "__init__":
            importlib.import_module(f"omni_kit.standins.{name}")
    assert {"timm", "flash_attn", "xformers", "apex", "mmcv"} <= stand_ins()


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("timm.models.vision_transformer.Mlp", "mlp.py"),
        ("timm.models.layers.to_2tuple", "helpers.py"),
        ("xformers.ops.memory_efficient_attention", "fmha.py"),
        ("flash_attn.flash_attn_func", "flash_attn_interface.py"),
        ("transformer_engine.pytorch.RMSNorm", "module.py"),
    ],
)
def test_a_name_leads_to_its_definition(name: str, file: str) -> None:
    found = in_stand_ins(name)
    assert found is not None
    assert Path(found.source.path).name == file


@pytest.mark.parametrize("name", ["timm.layers.NoSuchLayer", "einops.rearrange"])
def test_a_name_without_a_stand_in_leads_nowhere(name: str) -> None:
    assert in_stand_ins(name) is None


def test_rotary_positions_turn_neighbouring_pairs_by_their_place() -> None:
    ours = importlib.import_module("omni_kit.standins.x_transformers.x_transformers")
    angles, scale = ours.RotaryEmbedding(4, base=100.0, base_rescale_factor=1.0).forward_from_seq_len(3)
    assert scale == 1.0
    torch.testing.assert_close(angles[0, :, ::2], torch.tensor([[0.0, 0.0], [1.0, 0.1], [2.0, 0.2]]))
    pair = torch.view_as_complex(torch.tensor([[[[3.0, 4.0]]]]))
    turned = ours.apply_rotary_pos_emb(torch.tensor([[[3.0, 4.0, 0.0, 0.0, 7.0]]]), angles[:, 1:2])
    expected = torch.view_as_real(pair * torch.exp(torch.tensor(1j)))[0, 0, 0]
    torch.testing.assert_close(turned[0, 0, :2], expected)
    assert turned[0, 0, 4] == 7.0  # beyond the angles nothing turns


@pytest.mark.parametrize("method", ["euler", "midpoint", "heun2"])
def test_steps_along_a_grid_come_near_the_solution(method: str) -> None:
    points, start = torch.linspace(0, 1, 5), torch.tensor([[1.0, -2.0]])
    found = odeint(lambda t, y: t - 0.5 * y, start, points, method=method)
    end = 2 * points[-1] - 4 + (start + 4) * torch.exp(-0.5 * points[-1])  # the solution at the last point
    torch.testing.assert_close(found[-1], end, rtol=0, atol=0.4 if method == "euler" else 0.01)


@pytest.mark.parametrize(
    ("ends", "size", "count"), [((0.0, 1.0), 0.25, 4), ((1.0, 0.0), 0.25, 4), ((0.0, 1.0), 0.3, 4)]
)
def test_steps_of_a_size_go_from_the_first_point_to_the_last(
    ends: tuple[float, float], size: float, count: int
) -> None:
    times: list[float] = []

    def answer(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        times.append(float(t))
        return torch.ones_like(y)

    found = odeint(answer, torch.zeros(2), torch.tensor(ends), method="euler", options={"step_size": size})
    assert times == pytest.approx([ends[0] + (ends[1] - ends[0]) * size * one for one in range(4)])
    torch.testing.assert_close(found[-1], torch.full((2,), ends[1] - ends[0]))
    assert len(found) == 2


def test_a_solver_that_adapts_its_steps_is_not_stood_in_for() -> None:
    with pytest.raises(NotImplementedError, match="pip install torchdiffeq"):
        odeint(lambda t, y: y, torch.ones(1), torch.linspace(0, 1, 3))


def test_positions_of_liger_turn_halves_and_its_norm_is_that_of_torch() -> None:
    q, k = torch.randn(2, 3, 5, 8), torch.randn(2, 1, 5, 8)
    angles = torch.randn(1, 5, 4).repeat(1, 1, 2)
    half = torch.cat((-q[..., 4:], q[..., :4]), dim=-1)
    turned, keys = LigerRopeFunction.apply(q, k, angles.cos(), angles.sin())
    torch.testing.assert_close(turned, q * angles.cos() + half * angles.sin())
    assert keys.shape == k.shape
    x, weight = torch.randn(3, 8), torch.randn(8)
    for mode in ("llama", "gemma", "none"):
        normed = LigerRMSNormFunction.apply(x, weight, 1e-5, 0.0, mode)
        torch.testing.assert_close(normed, nn.functional.rms_norm(x, (8,), weight, 1e-5))


def test_axes_are_aligned_by_their_names() -> None:
    x, y = torch.randn(2, 3), torch.randn(3, 4)
    torch.testing.assert_close(einx.multiply("b n, n d -> d b n", x, y), torch.einsum("bn,nd->dbn", x, y))
    torch.testing.assert_close(einx.add("b n, n", x, y[:, 0]), x + y[:, 0])
    torch.testing.assert_close(einx.subtract("n b, n -> b n", x.T, y[:, 0]), x - y[:, 0])
    with pytest.raises(ValueError, match="install einx"):
        einx.multiply("b ..., b -> b ...", x, y)


def test_one_pattern_rearranges_several_tensors() -> None:
    x = torch.randn(2, 3, 4)
    turned, other = rearrange_many((x, x + 1), "b l d -> b d l")
    assert torch.equal(turned, x.mT)
    assert torch.equal(other, x.mT + 1)
    assert next(repeat_many([x], "b l d -> b (n l) d", n=2)).shape == (2, 6, 4)
    assert torch.equal(next(reduce_many([x], "b l d -> b d", reduction="max")), x.amax(dim=1))
    assert check_shape(x, "b l d", b=2) is not None
    with pytest.raises(Exception, match="4 != 5"):
        check_shape(x, "b l d", d=5)


@pytest.mark.parametrize("form", ["bshd", "sbhd"])
def test_transformer_engine_attends_and_turns_in_both_orders(
    form: str, qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> None:
    ours = importlib.import_module("omni_kit.standins.transformer_engine")
    attend = ours.pytorch.DotProductAttention(3, 8, qkv_format=form, attn_mask_type="no_mask")
    own = [one if form == "bshd" else one.transpose(0, 1) for one in qkv]
    found = attend(*own)
    torch.testing.assert_close(found if form == "bshd" else found.transpose(0, 1), attended(*qkv).flatten(2))
    hidden = torch.full((5, 5), float("-inf")).triu(1)
    causal = attend(*own, attn_mask_type="causal")
    torch.testing.assert_close(causal if form == "bshd" else causal.transpose(0, 1), attended(*qkv, hidden).flatten(2))
    angles = torch.randn(5, 1, 1, 2).repeat(1, 1, 1, 2)
    turned = ours.pytorch.attention.apply_rotary_pos_emb(own[0], angles, tensor_format=form)
    turned = turned if form == "bshd" else turned.transpose(0, 1)
    cos, sin = angles[:, 0, 0, :2].cos(), angles[:, 0, 0, :2].sin()
    torch.testing.assert_close(turned, apply_rotary_emb_torch(qkv[0], cos, sin))
    with pytest.raises(NotImplementedError, match="pip install transformer_engine"):
        attend(*own, attn_mask_type="padding")


@pytest.mark.parametrize(("name", "plain"), [("RMSNorm", nn.RMSNorm), ("LayerNorm", nn.LayerNorm)])
def test_norms_of_transformer_engine_are_those_of_torch(name: str, plain: type[nn.Module]) -> None:
    ours = getattr(importlib.import_module("omni_kit.standins.transformer_engine.pytorch"), name)
    x, own, around = torch.randn(2, 8), ours(8), ours(8, zero_centered_gamma=True)
    torch.testing.assert_close(own(x), plain(8, eps=1e-5)(x))
    torch.testing.assert_close(around(x), own(x))
    assert own(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize("text", [False, True])
def test_attention_of_earlier_versions_computes_as_that_of_today(text: bool) -> None:
    earlier = importlib.import_module("omni_kit.standins.diffusers.models.attention").CrossAttention
    sizes = {"query_dim": 12, "cross_attention_dim": 6 if text else None, "heads": 2, "dim_head": 4, "bias": True}
    today = Attention(**sizes)
    ours = earlier(**sizes)
    assert ours.load_state_dict(today.state_dict())
    x, condition = torch.randn(2, 5, 12), torch.randn(2, 3, 6) if text else None
    torch.testing.assert_close(ours(x, condition), today(x, condition))
    mask = torch.full((2, 1, 5), -1e4)
    mask[..., 0] = 0.0
    if not text:  # a mask over queries alone, as these versions have it
        torch.testing.assert_close(ours(x, None, mask), today(x, None, mask))


def test_an_installed_package_lends_only_what_it_lacks() -> None:
    assert in_stand_ins("diffusers.models.attention.CrossAttention") is not None
    assert in_stand_ins("diffusers.models.attention.FeedForward") is None
