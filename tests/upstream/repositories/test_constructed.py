"""Classes whose forward their constructor assigns, and constructors that take a dataclass among other arguments."""

from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.upstream.repositories.reference import Reference, find_reference

CHOSEN = """import torch
class Net(torch.nn.Module):
    def __init__(self, saves=None, flag=False):
        super().__init__()
        self.saves = saves
        {assigned}

    def plainly(self, x, t, **kwargs):
        \"\"\"Return it.\"\"\"
        return x + t

    def saving(self, x, t{more}, **kwargs):
        return x - t

    def last(self):
        return 1
"""
BOTH = "if {}:\n            self.forward = self.saving\n        else:\n            self.forward = self.plainly"


def found_in(folder: Path, text: str) -> Reference:
    (folder / "m.py").write_text(text, encoding="utf-8")
    return find_reference(f"{folder}::Net")


def test_a_method_that_the_constructor_assigns_is_forward(tmp_path: Path) -> None:
    text = CHOSEN.format(assigned="self.forward = self.plainly", more="")
    cls = found_in(tmp_path, text).cls
    assert cls.defines("forward") is not None
    assert cls.defines("plainly") is None
    assert "self.forward" not in cls.source.text


def test_of_two_methods_forward_asks_which_as_the_constructor_does(tmp_path: Path) -> None:
    text = CHOSEN.format(assigned=BOTH.format("self.saves"), more="")
    cls = found_in(tmp_path, text).cls
    assert "if self.saves: return self.saving(x, t, **kwargs)" in cls.source.text
    last = cls.defines("last")
    assert last is not None
    assert last.lineno == text.split("\n").index("    def last(self):") + 1


@pytest.mark.parametrize(("assigned", "more"), [
    (BOTH.format("flag"), ""),  # of the constructor alone
    (BOTH.format("self.saves"), ", y=None"),  # other arguments
    ("self.forward = torch.compile(self.plainly)", ""),
])  # fmt: skip
def test_what_is_assigned_in_another_way_is_no_forward(assigned: str, more: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no forward"):
        found_in(tmp_path, CHOSEN.format(assigned=assigned, more=more))


MIXED = """from dataclasses import dataclass, field
import torch

class Inner:
    pass

@dataclass
class Config:
    width: int = 64
    inner: Inner = field(default_factory=Inner)

class Net(torch.nn.Module):
    def __init__(self, {arguments}):
        super().__init__()
        self.proj = torch.nn.Linear(channels, config.width)

    def forward(self, x, t):
        return self.proj(x)
"""


def test_a_dataclass_may_be_one_of_several_arguments(tmp_path: Path) -> None:
    found = found_in(tmp_path, MIXED.format(arguments="channels: int, config: Config"))
    assert found.settings is not None
    assert [*found.arguments] == ["width", "inner", "channels"]
    assert found.settings.made_inside == {"inner"}


@pytest.mark.parametrize("arguments", ["channels: int, config: Config = None", "width: int, config: Config"])
def test_a_dataclass_that_may_be_null_or_has_the_name_of_an_argument_is_none(arguments: str, tmp_path: Path) -> None:
    assert found_in(tmp_path, MIXED.format(arguments=arguments)).settings is None
