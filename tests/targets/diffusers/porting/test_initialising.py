"""Initial weights are left out; what is computed and stored stays."""

from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ASKED, SPLIT, attention, ported

FIRST = """        self.table = nn.Parameter(torch.zeros(1, dim), requires_grad=False)
        self.apply(self._init_weights)
        self.fill()
"""
METHODS = """
    def _init_weights(self, m):
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
        elif not isinstance(m, nn.ModuleList):
            raise RuntimeError(f"{m} is not known")

    def fill(self):
        nn.init.zeros_(self.blocks[0].o.weight)
        made = torch.arange(3.0)
        self.table.data.copy_(made)
        for block in self.blocks:
            nn.init.constant_(block.o.bias, 0)

    @torch.jit.ignore
    def no_weight_decay(self):
        return {"table"}
"""


def test_first_values_are_left_out_and_what_is_computed_stays(tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace("depth)])\n", f"depth)])\n{FIRST}{METHODS}", 1)
    found = ported(tmp_path, text)
    assert "nn.init" not in found.text
    assert "no_weight_decay" not in found.text
    assert 'self.register_buffer("table", torch.zeros(1, dim), persistent=True)' in found.text
    assert "made = torch.arange(3.0)\n        self.table.data.copy_(made)" in found.text
    assert "self.to_q = nn.Linear" in found.text  # nobody asks for the layers by name any more


OF_PARTS = """
    def initialize_weights(self):
        def once(layer):
            nn.init.zeros_(layer.weight)

        for block in self.blocks:
            once(block.o)
            block.initialize_weights()
"""


@pytest.mark.parametrize(("value", "left"), [("nn.init.ones_(self.o.weight)", False), ("self.scale = 2.0", True)])
def test_first_values_of_parts_are_left_out_unless_they_are_more(value: str, left: bool, tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace("depth)])\n", f"depth)])\n        self.initialize_weights()\n{OF_PARTS}", 1)
    own = f"    def initialize_weights(self):\n        {value}\n\n    def forward("
    found = ported(tmp_path, text.replace("    def forward(", own, 1))
    assert ("initialize_weights" in found.text) == ("nn.init" in found.text) == left


@pytest.mark.parametrize(("value", "first"), [
    ("None", 'self.register_buffer("table", None)'), ("dim", "self.table = dim"),
])  # fmt: skip
def test_what_is_none_before_it_is_a_buffer_is_one_at_once(value: str, first: str, tmp_path: Path) -> None:
    text = attention(SPLIT, ASKED).replace("depth)])\n", f"depth)])\n        self.table = {value}\n{FIRST}{METHODS}", 1)
    assert f"{first}\n" in ported(tmp_path, text).text


def test_a_method_that_computes_more_than_first_values_stays(tmp_path: Path) -> None:
    more = METHODS.replace("made = torch", "self.kept = torch")
    text = attention(SPLIT, ASKED).replace("depth)])\n", f"depth)])\n{FIRST}{more}", 1)
    assert "self.kept = torch.arange" in ported(tmp_path, text).text


DATA = """
def conv(width):
    layer = nn.Conv2d(width, width, 1)
    layer.weight.data = torch.zeros(layer.weight.shape)
    return layer


class Net(nn.Module):
    def __init__(self, dim=8, more=True):
        super().__init__()
        self.layer = conv(dim)
        self.table = nn.Parameter(torch.zeros(dim))
        self.table.data = torch.ones(dim)
        if more:
            self.layer.bias.data = torch.ones(dim)

    def forward(self, x, t):
        return self.layer(x) * self.table
"""


def test_data_of_weights_is_not_set_while_they_are_made(tmp_path: Path) -> None:
    text = ported(tmp_path, DATA).text
    assert ".weight.data" not in text
    assert ".bias.data" not in text
    assert "table.data = torch.ones(dim)" in text


@pytest.mark.parametrize(("made", "zeros"), [
    ("torch.Tensor([dim / 2])", False), ("torch.Tensor(dim, 2)", True), ("torch.empty([dim, 2])", True),
])  # fmt: skip
def test_a_parameter_of_values_keeps_them(tmp_path: Path, made: str, zeros: bool) -> None:
    text = ported(tmp_path, DATA.replace("torch.zeros(dim))", f"{made})")).text
    assert ("nn.Parameter(torch.zeros(" in text) is zeros
    assert zeros or f"nn.Parameter({made})" in text


@pytest.mark.parametrize("given", ["self.apply_weight_norm()", "self.apply(apply_weight_norm)"])
def test_norms_of_weights_stay(given: str, tmp_path: Path) -> None:
    head = "def apply_weight_norm(m):\n    if isinstance(m, nn.Linear):\n        nn.utils.weight_norm(m)\n\n\n"
    own = "\n    def apply_weight_norm(self):\n        self.apply(apply_weight_norm)\n"
    text = attention(SPLIT, ASKED).replace("depth)])\n", f"depth)])\n        {given}\n{own}", 1)
    assert f"        {given}\n" in ported(tmp_path, head + text).text.replace("tiny_", "")
