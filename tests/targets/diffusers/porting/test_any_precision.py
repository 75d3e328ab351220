"""Casts to half precision become casts to the precision of what a function receives."""

import re
from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import NET, ported


@pytest.mark.parametrize(("cast", "stays"), [
    ("x.to(torch.bfloat16)", False), ("x.half()", False), ("x.to(dtype=torch.float16)", False),
    ("x.to(torch.float32)", True), ("x.to(t.dtype)", True), ("half(x)", False),
])  # fmt: skip
def test_a_cast_to_half_precision_is_one_to_that_of_the_input(cast: str, stays: bool, tmp_path: Path) -> None:
    text = NET.replace("x = block(x)", f"x = block({cast})").replace("Attn(dim)", "nn.Linear(dim, dim)")
    if cast == "half(x)":
        text = text.replace("class Net", "def half(x, low=torch.bfloat16):\n    return x.to(low)\n\n\nclass Net", 1)
        found = ported(tmp_path, text).text
        assert "input_dtype = x.dtype\n    return x.to(input_dtype)" in found
        return
    found = ported(tmp_path, text).text
    assert ("input_dtype = hidden_states.dtype\n" in found) != stays
    assert ("hidden_states.to(input_dtype)" in found or "hidden_states.to(dtype=input_dtype)" in found) != stays
    assert not re.search("float16|half", found)


OWN_GRADIENT = """
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward({arguments}):
        ctx.scale = 2.0
        y = x * ctx.scale
        return {returned}

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, t):
        return Scaled.apply(self.proj(x))
"""


@pytest.mark.parametrize(("arguments", "returned", "line"), [
    ("ctx, x", "y.to(torch.float16).view(x.shape)", "input_dtype = x.dtype"),
    ("context, x: torch.Tensor", "y.half() if x.requires_grad else y", "input_dtype = x.dtype"),
    ("ctx, x", "y.to(torch.float32).view(x.shape)", ""), ("ctx, x", "y.cuda().view(x.shape)", "return y.to(x.device)"),
])  # fmt: skip
def test_what_autograd_hands_on_is_no_tensor(arguments: str, returned: str, line: str, tmp_path: Path) -> None:
    text = OWN_GRADIENT.format(arguments=arguments, returned=returned)
    found = ported(tmp_path, text.replace("ctx.", "context.") if "context" in arguments else text).text
    assert line in found
    assert not re.search(r"(ctx|context)\.(dtype|device)", found)
    assert ("input_dtype" in found) == ("input_dtype" in line)
