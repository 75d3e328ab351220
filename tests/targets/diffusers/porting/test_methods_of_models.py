"""Methods of the authors' model besides forward: they get what it returned; those that only cast are left out."""

from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ported

GUIDES = """
class Net(nn.Module):
    def __init__(self, dim: int = 8):
        super().__init__()
        self.layer = nn.Linear(dim, dim)

    def forward(self, x, t, detail=False):
        x = self.layer(x) + t
        return {answer}

    def guided(self, x, t, scale, **more):
        both = self({call})
        return both[:, 0] * scale
"""


@pytest.mark.parametrize(
    ("answer", "call", "written"),
    [
        ("x", "x, t=t, **more", "self(x, timestep=t, **more, return_dict=False)[0]"),
        ("x, t", "x, t", "self(x, t, return_dict=False)\n"),
        ("x", "x, t, detail=True", "self(x, t, detail=True, return_dict=False)[0]"),
        ("{'x': x}", "x, t", '{"x": self(x, t, return_dict=False)[0]}\n'),
    ],
)
def test_other_methods_get_what_the_authors_forward_returns(
    answer: str, call: str, written: str, tmp_path: Path
) -> None:
    assert f"both = {written}" in ported(tmp_path, GUIDES.format(answer=answer, call=call)).text


def test_what_a_switch_asks_for_stays(tmp_path: Path) -> None:
    text = GUIDES.format(answer="x", call="x, t, detail=True")
    text = text.replace("        return x\n", "        if detail:\n            return x, t\n        return x\n")
    assert "both = self(x, t, detail=True)\n" in ported(tmp_path, text).text


CASTS = """
def to_half(module):
    if isinstance(module, nn.Linear):
        module.weight.data = module.weight.data.half()


class Net(nn.Module):
    def __init__(self, dim: int = 8):
        super().__init__()
        self.layer = nn.Linear(dim, dim)

    def convert(self):
        \"\"\"Casts.\"\"\"
        self.apply(to_half)
        for one in self.children():
            one.bias.data = one.bias.data.float()
        {more}

    def forward(self, x, t):
        return self.layer(x) + t
"""


@pytest.mark.parametrize(("more", "kept"), [("self.dtype = torch.float16", False), ("self.done = 1 + 1", True)])
def test_methods_that_only_cast_are_left_out_with_their_helpers(more: str, kept: bool, tmp_path: Path) -> None:
    text = ported(tmp_path, CASTS.format(more=more)).text
    assert ("def convert" in text) == kept
    assert ("def to_half" in text) == kept


def test_methods_that_cast_and_are_called_stay(tmp_path: Path) -> None:
    text = CASTS.format(more="").replace("dim, dim)\n", "dim, dim)\n        self.convert()\n", 1)
    assert "def convert" in ported(tmp_path, text).text
