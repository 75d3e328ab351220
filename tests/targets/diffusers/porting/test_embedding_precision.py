"""A model runs in the precision that it is cast to."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import first
from tests.targets.diffusers.porting.small_models import ASKED, NET, SPLIT, attention, ported


@pytest.mark.parametrize(("name", "patterns"), [("norm_of_it", "['norm']"), ("last", "[]")])
def test_only_modules_with_such_names_stay_in_high_precision(name: str, patterns: str, tmp_path: Path) -> None:
    norm = f"self.{name} = nn.Linear(dim, dim)\nnn.functional.normalize(self.{name}.weight)"
    found = ported(tmp_path, attention(f"{SPLIT}\n{norm}", ASKED))
    assert f"_skip_layerwise_casting_patterns = {patterns}".replace("'", '"') in found.text


WAVES = (
    "def waves(t, dim):\n    t = t[:, None].float() * torch.arange(dim // 2)\n"
    "    return torch.cat([torch.cos(t), torch.sin(t)], dim=-1)\n\n\n"
)


@pytest.mark.parametrize("made", first(1, ["torch.float32", "torch.float16 if depth > 9 else torch.float32"]))
@pytest.mark.parametrize(("layer", "called"), [
    ("nn.Sequential(nn.Linear(dim, dim), nn.SiLU())", "self.t_in(waves(t, self.dim))"),
    ("nn.Linear(dim, dim)", "self.t_in(y)"),
    ("nn.Sequential(nn.Identity(), nn.Linear(dim, dim))", "self.t_in(y)"),
    ("nn.Linear(dim, dim) if depth > 9 else nn.Identity()", "self.t_in(waves(t, self.dim))"),
])  # fmt: skip
def test_a_model_runs_in_the_precision_that_it_is_cast_to(made: str, layer: str, called: str, tmp_path: Path) -> None:
    import torch

    init = f"self.dim = dim\n        self.dtype = {made}\n        self.t_in = {layer}\n        self.blocks = nn"
    body = "y = waves(t, self.dim)\n        y = y.to(x.device)\n        x = x.type(self.dtype)"
    body += f" + {called}[:, None]\n        for block"
    net = NET.replace("self.blocks = nn", init).replace("for block", body)
    found = ported(tmp_path, WAVES + attention(SPLIT, ASKED).replace(NET, net))
    assert not found.todo
    assert "dtype_" not in found.text
    names: dict[str, Any] = {"__name__": "ported"}
    exec(compile(found.text, "ported.py", "exec"), names)
    model = names[found.class_name]().to(torch.bfloat16)
    given = torch.randn(2, 3, 8, dtype=torch.bfloat16), torch.tensor([1, 2]), torch.randn(2, 3, 8, dtype=torch.bfloat16)
    assert model(*given).sample.dtype == torch.bfloat16
