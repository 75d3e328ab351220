"""A kernel that stands for diffusers' dispatch answers as that does; in a wrapper, and its loss in float32."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from diffusers.models.attention_dispatch import dispatch_attention_fn
from torch import nn

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.resources import resource_dir
from omni_kit.targets.veomni.dit.attention_kernels import attention_faults, select_attention

Kernel = Callable[..., torch.Tensor]


def whole(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **asked: object) -> torch.Tensor:
    """diffusers' own, called in another place."""
    answer: torch.Tensor = dispatch_attention_fn(query, key, value, **asked)
    return answer


def without_mask(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **asked: object) -> torch.Tensor:
    """Drops a mask."""
    return whole(query, key, value, **{**asked, "attn_mask": None})


def without_scale(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **asked: object) -> torch.Tensor:
    """Drops a scale."""
    return whole(query, key, value, **{**asked, "scale": None})


def refusing(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **asked: object) -> torch.Tensor:
    """Takes no mask, and says so."""
    if asked.get("attn_mask") is not None:
        raise ValueError("no mask is taken")
    return whole(query, key, value, **asked)


def attending(kernel: Kernel) -> nn.Module:
    """A module with a processor in which `dispatch_attention_fn` is a kernel."""
    names: dict[str, object] = {"dispatch_attention_fn": kernel}
    exec("class Processor:\n    def __call__(self, q, k, v):\n        return dispatch_attention_fn(q, k, v)\n", names)
    model = nn.Linear(1, 1)
    model.processor = names["Processor"]()  # type: ignore[operator]
    return model


@pytest.mark.parametrize(("kernel", "found"), [
    (dispatch_attention_fn, []),
    (whole, []),
    (refusing, []),
    (without_mask, ["attention with a mask is not diffusers' own"]),
    (without_scale, ["attention with a scale of 0.5 is not diffusers' own"]),
])  # fmt: skip
def test_whatever_processors_ask_of_it(kernel: Kernel, found: list[str]) -> None:
    assert [*attention_faults(attending(kernel))] == found


class Choosing:
    """A kernel that chooses an implementation by name."""

    attn_implementation = "sdpa"

    def __call__(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **asked: object) -> torch.Tensor:
        """diffusers' own."""
        return whole(query, key, value, **asked)


def test_attention_is_selected_in_kernels_that_choose_by_name() -> None:
    kernel = Choosing()
    assert select_attention(attending(kernel), "torch_varlen")
    assert kernel.attn_implementation == "torch_varlen"
    assert not select_attention(attending(whole), "torch_varlen")
    assert not select_attention(attending(dispatch_attention_fn), "torch_varlen")


MASK = (
    "attention.py",
    "self.attn_implementation in _OF_TORCH or attn_mask is not None",
    "self.attn_implementation in _OF_TORCH",
)
LOSS = (
    "modeling_wan_transformer.py",
    "F.mse_loss(prediction.float(), target.float())",
    "F.mse_loss(prediction, target)",
)


@pytest.mark.sweep
def test_a_wrapper_is_asked_what_its_own_model_never_asks(tmp_path: Path) -> None:
    wan = shutil.copytree(resource_dir("reference_models") / "veomni" / "wan", tmp_path / "wan_asked")
    for name, old, new in (MASK, LOSS):
        file = wan / "wan_transformer" / name
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1
        file.write_text(text.replace(old, new), encoding="utf-8")
    with Sides(tmp_path / "logs") as sides:  # the registry of others has this model
        report = run_parity(wan, ["hooks", "dtype"], sides=sides)
    assert "attention with a mask by flash attention is not diffusers' own" in report.level("hooks").reason
    assert "the loss is bfloat16, and upstream's float32" in report.level("dtype").reason
