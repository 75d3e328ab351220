"""What VeOmni's settings can choose is read from the installed version, and calls are caught as models make them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

pytest.importorskip("veomni")

from omni_kit.kernels.proof import errors_of
from omni_kit.parity.candidate import find_candidate
from omni_kit.targets.references.transformers import TransformersBuilder
from omni_kit.targets.sides import Choosing, KernelCall
from omni_kit.targets.veomni.runtime.compiling import SETTING
from omni_kit.targets.veomni.runtime.kernels import bring_kernels, built_in, setting_of
from omni_kit.targets.veomni.runtime.side import VeOmniBuilder
from omni_kit.targets.veomni.text.context import BROUGHT

OLMOE = Path(__file__).parents[4] / "reference_models" / "veomni" / "olmoe"
LOSS, ATTENTION = "cross_entropy_loss_implementation", "attn_implementation"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VeOmniBuilder, Any, Path]]:
    candidate = find_candidate(OLMOE)
    place = tmp_path_factory.mktemp("olmoe")
    (place / "config.json").write_bytes((OLMOE / "toy_config.json").read_bytes())
    builder = VeOmniBuilder()
    builder.open(candidate.options)
    yield builder, builder.sized(place, "float32"), place
    sys.path.remove(str(candidate.options["sys_path"]))
    own = str(candidate.options["import_name"])
    for name in [name for name in sys.modules if name == own or name.startswith(f"{own}.")]:
        del sys.modules[name]  # other tests make a plugin of this name


def test_the_side_can_choose(built: tuple[VeOmniBuilder, Any, Path]) -> None:
    assert isinstance(built[0], Choosing)
    assert list(built[0].settings_place()) == ["model", "ops_implementation"]


def test_choices_are_those_of_the_registry(built: tuple[VeOmniBuilder, Any, Path]) -> None:
    from veomni.arguments.arguments_types import OpsImplementationConfig
    from veomni.ops.kernel_registry import KERNEL_REGISTRY

    found = {choice.setting: choice for choice in built[0].choices(built[2])}
    known = set(KERNEL_REGISTRY.list_available("cross_entropy_loss", "causal"))
    names = {kernel.name: kernel for kernel in found[LOSS].kernels}
    assert set(names) == known | {"eager"}
    assert names["eager"].plain
    assert not names["chunk_loss"].missing
    assert {"sdpa", "flash_attention_2"} <= {kernel.name for kernel in found[ATTENTION].kernels}
    for setting, choice in found.items():
        if setting == SETTING:  # compiled blocks are set elsewhere
            continue
        assert choice.default == OpsImplementationConfig.__dataclass_fields__[setting].default
        assert choice.fallback in {kernel.name for kernel in choice.kernels}


def test_experts_go_by_another_name() -> None:
    assert setting_of("moe_experts") == "moe_implementation"
    assert setting_of("rms_norm") == "rms_norm_implementation"


def test_no_slot_of_a_plain_model_is_asked_while_it_is_built(built: tuple[VeOmniBuilder, Any, Path]) -> None:
    assert built_in(sys.modules[type(built[1]).__module__]) == set()


@pytest.mark.parametrize(
    ("setting", "kernel", "sequences"),
    [(LOSS, "chunk_loss", 1), (LOSS, "chunk_loss", 3), (ATTENTION, "sdpa", 1), (ATTENTION, "eager", 1)],
)
def test_a_chosen_kernel_is_caught_and_is_right(
    built: tuple[VeOmniBuilder, Any, Path], setting: str, kernel: str, sequences: int
) -> None:
    builder, model, _ = built
    same = builder.choose(model, {setting: kernel})
    assert same is model
    calls = builder.kernel_calls(model, setting, TransformersBuilder().inputs(model, sequences, 12))
    assert len(calls) == 1
    assert isinstance(calls[0], KernelCall)
    errors = errors_of(calls[0], torch.float32)
    assert any(error.what.startswith("gradient") for error in errors)
    assert all(error.kernel <= error.allowed for error in errors)


def test_plain_code_is_not_called_through_a_slot(built: tuple[VeOmniBuilder, Any, Path]) -> None:
    builder, model, _ = built
    builder.choose(model, {})
    assert builder.kernel_calls(model, LOSS, TransformersBuilder().inputs(model, 1, 12)) == []


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_attention_that_looks_into_other_sequences_is_wrong(
    built: tuple[VeOmniBuilder, Any, Path], kernel: str
) -> None:
    """VeOmni packs sequences into one row, and says where they begin to kernels that listen."""
    builder, model, _ = built
    builder.choose(model, {ATTENTION: kernel})
    (call,) = builder.kernel_calls(model, ATTENTION, TransformersBuilder().inputs(model, 3, 12))
    assert isinstance(call, KernelCall)
    assert any(error.kernel > error.allowed for error in errors_of(call, torch.float32))


@pytest.mark.sweep
def test_flex_attention_that_joins_packed_samples_is_found_before_it_compiles(
    built: tuple[VeOmniBuilder, Any, Path],
) -> None:
    builder, model, _ = built
    builder.choose(model, {ATTENTION: "flex_attention"})
    with pytest.raises(ValueError, match="its mask lets tokens see the packed sample before theirs"):
        builder.kernel_calls(model, ATTENTION, TransformersBuilder().inputs(model, 3, 12))


def test_choices_give_the_loss_that_plain_code_gives(built: tuple[VeOmniBuilder, Any, Path]) -> None:
    builder, model, _ = built
    batch = builder.batch(model, TransformersBuilder().inputs(model, 1, 24))
    choices: tuple[dict[str, str], ...] = (
        {},
        {LOSS: "chunk_loss"},
        {ATTENTION: "sdpa"},
        {LOSS: "chunk_loss", ATTENTION: "sdpa"},
    )
    losses = [float(builder.choose(model, chosen)(**batch).loss.detach()) for chosen in choices]
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-5)


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("limit", [None, 0.5])
def test_grouped_products_are_those_of_each_expert(merged: bool, limit: float | None) -> None:
    """Forward and gradients against a loop over tokens and experts in float64; one expert gets no token."""
    bring_kernels()
    forward = sys.modules["omni_kit_grouped_mm"].grouped_mm_forward
    torch.manual_seed(0)
    experts, width, inner, top = 5, 16, 8, 2
    given = {"x": torch.randn(7, width), "gate_up": torch.randn(experts, 2 * inner, width) / 4,
             "down": torch.randn(experts, width, inner) / 4, "weights": torch.rand(7, top)}  # fmt: skip
    chosen = torch.stack([torch.randperm(experts - 1)[:top] for _ in range(7)])

    def run(kernel: bool) -> dict[str, torch.Tensor]:
        dtype = torch.bfloat16 if kernel else torch.float64
        own = {name: value.to(torch.bfloat16).to(dtype).requires_grad_() for name, value in given.items()}
        gate, up = own["gate_up"].chunk(2, dim=1)
        if kernel:
            parts = (None, None, own["down"], own["gate_up"]) if merged else (gate, up, own["down"], None)
            out = forward(experts, own["weights"], chosen, own["x"], *parts, limit)
        else:
            rows = [
                sum((own["weights"][row, place] * (own["down"][one] @ _swiglu(gate[one] @ x, up[one] @ x, limit))
                     for place, one in enumerate(chosen[row].tolist())), torch.zeros(width, dtype=dtype))
                for row, x in enumerate(own["x"])
            ]  # fmt: skip
            out = torch.stack(rows)
        (out * torch.linspace(-1, 1, out.numel(), dtype=dtype).view_as(out)).sum().backward()
        return {"out": out.detach(), **{name: value.grad for name, value in own.items() if value.grad is not None}}

    expected, found = run(False), run(True)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        error = (found[name].double() - value).norm() / value.norm()
        assert error < 0.02, name
    assert not found["gate_up"][experts - 1].any()


def _swiglu(gate: torch.Tensor, up: torch.Tensor, limit: float | None) -> torch.Tensor:
    if limit is not None:
        gate, up = gate.clamp(max=limit), up.clamp(min=-limit, max=limit)
    return torch.nn.functional.silu(gate) * up


@pytest.mark.parametrize(("setting", "kernels"), BROUGHT.items())
def test_the_brought_kernels_can_be_chosen(
    built: tuple[VeOmniBuilder, Any, Path], setting: str, kernels: dict[str, str]
) -> None:
    found = {choice.setting: choice for choice in built[0].choices(built[2])}
    for kernel, module in kernels.items():
        (one,) = [one for one in found[setting].kernels if one.name == kernel]
        assert bool(one.missing) is not torch.cuda.is_available()
        assert f"omni_kit_{module}" in sys.modules


def test_brought_attention_refuses_what_it_does_not_compute() -> None:
    bring_kernels()
    attention = sys.modules["omni_kit_torch_varlen"].torch_varlen_attention
    heads = torch.zeros(1, 2, 4, 8)
    for option in ({"dropout": 0.1}, {"softcap": 30.0}, {"s_aux": torch.zeros(2)}):
        with pytest.raises(NotImplementedError, match="torch_varlen has no dropout"):
            attention(None, heads, heads, heads, None, **option)


def test_brought_attention_takes_values_that_are_narrower_than_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_one_width(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: object
    ) -> tuple[torch.Tensor, None]:
        """What the kernel needs a GPU for: one sequence, [tokens, heads, width], no causality."""
        assert query.shape == key.shape == value.shape
        weights = torch.einsum("qhd,khd->hqk", query, key).mul(query.shape[-1] ** -0.5).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, value), None

    bring_kernels()
    module = sys.modules["omni_kit_torch_varlen"]
    monkeypatch.setattr(module, "_attended", of_one_width)
    query, key, value = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 6)
    answer, _ = module.torch_varlen_attention(None, query, key, value, None, is_causal=False)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
    torch.testing.assert_close(answer, expected)


def test_brought_attention_is_one_node_of_a_graph_with_gradients_of_the_right_shapes() -> None:
    """Without storage, because its kernels need a GPU; a second registration, by an integration, replaces the first."""
    bring_kernels()
    for _ in range(2):
        with FakeTensorMode(allow_non_fake_inputs=True):
            query = torch.empty(1, 4, 6, 8, dtype=torch.bfloat16, requires_grad=True)
            key, value = (torch.empty(1, 2, 6, 8, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
            bounds = torch.empty(3, dtype=torch.int32)
            attention = sys.modules["omni_kit_torch_varlen"].torch_varlen_attention
            answer, _ = attention(None, query, key, value, None, is_causal=True, cu_seq_lens_q=bounds, max_length_q=4)
            answer.sum().backward()
            assert (answer.shape, answer.dtype) == ((1, 6, 4, 8), torch.bfloat16)
            assert [one.grad is not None and one.grad.shape == one.shape for one in (query, key, value)] == [True] * 3
        del sys.modules["omni_kit_torch_varlen"]
        bring_kernels()


def test_only_a_row_of_one_sequence_without_a_window_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    bring_kernels()
    is_whole = sys.modules["omni_kit_torch_varlen"]._is_whole
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    rows, one, two = torch.empty(6, 2, 8), torch.empty(2), torch.empty(3)
    assert is_whole(rows, rows, one, True, -1)
    assert is_whole(rows, rows[:4], one, False, -1)
    assert not is_whole(rows, rows, two, True, -1)
    assert not is_whole(rows, rows, one, True, 3)
    assert not is_whole(rows, rows[:4], one, True, -1)
    assert not is_whole(rows[..., :6], rows, one, True, -1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert not is_whole(rows, rows, one, True, -1)


def test_a_brought_loss_leaves_the_names_of_the_others_alone() -> None:
    from veomni.ops.kernels import cross_entropy

    bring_kernels()
    loss = sys.modules["omni_kit_liger_large_chunks"].large_chunk_loss
    assert cross_entropy._resolve_cross_entropy_fn("liger_large_chunks") is loss
    assert cross_entropy._resolve_cross_entropy_fn("eager") is cross_entropy.eager_cross_entropy
    with pytest.raises(ValueError, match="nothing"):
        cross_entropy._resolve_cross_entropy_fn("nothing")
    with pytest.raises(RuntimeError, match="needs hidden_states and weights"):
        loss(labels=torch.zeros(2, dtype=torch.long))
