"""Feed-forwards are the library's where it computes the same."""

from pathlib import Path

import pytest

from tests.conftest import first
from tests.targets.diffusers.porting.small_models import NAMED, ported

FF = """
class Ff(nn.Module):
    def __init__(self, dim, hidden, act=nn.GELU, drop=0.0):
        super().__init__()
        self.a = nn.Linear(dim, hidden)
        self.act = act()
        self.drop = nn.Dropout(drop)
        self.b = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.b(self.drop(self.act(self.a(x))))


"""


@pytest.mark.parametrize(("made", "written"), first(2, [
    ("Ff(dim, 4 * dim)", 'FeedForward(dim, inner_dim=4 * dim, activation_fn="gelu")'),
    ("Ff(dim, dim, act=lambda: nn.GELU(approximate='tanh'))", 'activation_fn="gelu-approximate"'),
    ("nn.Sequential(nn.Linear(dim, 9), nn.SiLU(), nn.Linear(9, dim))", 'inner_dim=9, activation_fn="linear-silu"'),
    ("Ff(dim, dim, drop=0.1)", ""),
    ("Ff(dim, dim, act=nn.ReLU)", ""),
]))  # fmt: skip
def test_feed_forwards_are_the_librarys_where_it_computes_the_same(made: str, written: str, tmp_path: Path) -> None:
    layer = NAMED.replace("nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))\n\n    def forward(self, x, y", f"{made}\n\n    def forward(self, x, y")  # fmt: skip  # noqa: E501
    found = ported(tmp_path, FF + layer)
    names = {name for row in found.rows for name in row.names}
    assert (r"transformer_blocks.\1.ff.net.0.proj.\2" in names) is bool(written)
    assert written in found.text
    assert ("class TinyFf" in found.text) is not bool(written)
