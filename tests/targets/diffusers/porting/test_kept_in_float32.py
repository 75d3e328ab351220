"""What authors cast to float32 wherever they read it stays in float32."""

from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ported

NET = """
class Norm(nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x.float(), self.normalized_shape, {weight}, {bias}, self.eps).to(x.dtype)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.{norm} = Norm(dim)
        self.gate = nn.Parameter(torch.ones(dim))
        self.{linear} = nn.Linear(dim, dim)
        {other}

    def forward(self, x):
        return x + ({gate} * self.{linear}(self.{norm}(x))).to(x.dtype)


class Net(nn.Module):
    def __init__(self, dim=8, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList([Block(dim) for _ in range(depth)])

    def forward(self, x, t):
        for block in self.blocks:
            x = block(x)
        return x
"""
USUAL = {
    "weight": "self.weight.float()", "bias": "self.bias.float() if self.bias is not None else None",
    "gate": "self.gate", "norm": "before", "linear": "proj", "other": "pass",
}  # fmt: skip


@pytest.mark.parametrize(("changed", "kept"), [
    ({}, '["before"]'),
    ({"gate": "self.gate[None].to(torch.float32)"}, '["before", "gate"]'),
    ({"gate": "self.gate.to(x.dtype)"}, '["before"]'),
    ({"bias": "self.bias"}, ""),  # half of it
    ({"linear": "before_proj"}, ""),  # whose name contains the other
    ({"other": "made = nn.Linear\n        self.before_all = made(dim, dim)"}, ""),
])  # fmt: skip
def test_what_is_always_cast_is_kept(changed: dict[str, str], kept: str, tmp_path: Path) -> None:
    found = ported(tmp_path, NET.format(**{**USUAL, **changed})).text
    assert ("_keep_in_fp32_modules" in found) is bool(kept)
    assert f"_keep_in_fp32_modules = {kept}" in found or not kept


def test_a_model_in_half_precision_keeps_them_and_computes_as_before(tmp_path: Path) -> None:
    import torch

    text = ported(tmp_path, NET.format(**{**USUAL, "gate": "self.gate.float()"})).text
    module: dict[str, object] = {}
    exec(compile(text, "<port>", "exec", dont_inherit=True), module)
    kind: type[torch.nn.Module] = module["TinyTransformer2DModel"]  # type: ignore[assignment]
    kind().save_pretrained(tmp_path)  # type: ignore[operator]
    model = kind.from_pretrained(tmp_path, torch_dtype=torch.bfloat16)  # type: ignore[attr-defined]
    kinds = {name.rpartition("blocks.0.")[2]: one.dtype for name, one in model.named_parameters()}
    assert kinds["before.weight"] == kinds["gate"] == torch.float32
    assert kinds["proj.weight"] == torch.bfloat16
    assert model(torch.ones(1, 4, 8, dtype=torch.bfloat16), torch.ones(1))[0].dtype == torch.bfloat16
