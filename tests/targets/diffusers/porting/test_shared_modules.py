"""Modules of constants that several hold are copied."""

from pathlib import Path

import pytest

from tests.targets.diffusers.porting.small_models import ported

SHARED = """
class Table(nn.Module):
    def __init__(self, width, learned=False):
        super().__init__()
        LINES

    def forward(self, x):
        return x + self.table


class Inner(nn.Module):
    def __init__(self, width, table=None):
        super().__init__()
        self.proj, self.table = nn.Linear(width, width), None
        self.table = table

    def forward(self, x):
        return self.table(self.proj(x))


class Outer(nn.Module):
    def __init__(self, width, table):
        super().__init__()
        self.inner = Inner(width, table=table)

    def forward(self, x):
        return self.inner(x)


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        table = MADE
        self.layers = nn.ModuleList([Outer(width, table), Outer(width, table)])

    def forward(self, x, t):
        for layer in self.layers:
            x = layer(x)
        return x
"""


@pytest.mark.parametrize(("lines", "made", "copied"), [
    ('self.register_buffer("table", torch.ones(width))', "Table(width)", True),
    ("self.table = nn.Parameter(torch.ones(width), requires_grad=learned)", "Table(width) if width else None", True),
    ("self.table = nn.Parameter(torch.ones(width), requires_grad=learned)", "Table(width, learned=True)", False),
    ("self.table = nn.Parameter(torch.ones(width))", "Table(width)", False),
    ('self.register_buffer("table", torch.ones(width), persistent=False)', "Table(width)", False),
])  # fmt: skip
def test_a_module_of_constants_that_several_hold_is_copied(lines: str, made: str, copied: bool, tmp_path: Path) -> None:
    text = ported(tmp_path, SHARED.replace("LINES", lines).replace("MADE", made)).text
    assert ("self.table = copy.deepcopy(table)" in text) == ("import copy" in text) == copied
