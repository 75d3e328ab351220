"""Models that no config can make: of modules that others make, or of models that they load by name."""

from pathlib import Path

import pytest

from omni_kit.upstream.repositories.made_elsewhere import why_not_made
from omni_kit.upstream.repositories.reference import find_reference

TEXT = """from torch import nn
from transformers import T5EncoderModel

class Words(nn.Module):
    def __init__(self, load=False):
        super().__init__()
        self.text = T5EncoderModel.from_pretrained("t5")

class Plain(nn.Module):
    pass

class Net(nn.Module):
    def __init__(self, {given}):
        super().__init__()
        {line}

    def forward(self, x, t):
        return {made} + t
"""


@pytest.mark.parametrize(("given", "line", "made", "says"), [
    ("trunk, width=4", "self.body = trunk", "self.body(x)", "takes modules that others make (trunk)"),
    ("width=4", "self.text = T5EncoderModel.from_pretrained('t5')", "x", "loads a model by its name"),
    ("width=4", "self.text = Words()", "x", "loads a model by its name"),
    ("load=False", "self.text = (Words if load else Plain)()", "x", ""),
    ("load=False", "if load:\n            self.text = Words()", "x", ""),
    ("trunk, width=4", "self.width = trunk", "x * self.width", ""),  # a number
    ("trunk=None", "self.body = trunk", "self.body(x)", ""),
    ("trunk", "self.body = nn.Linear(trunk, trunk)", "self.body(x)", ""),
    ("load=False", "if load:\n            self.text = T5EncoderModel.from_pretrained('t5')", "x", ""),
])  # fmt: skip
def test_parts_that_a_constructor_does_not_make(given: str, line: str, made: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(TEXT.format(given=given, line=line, made=made), encoding="utf-8")
    what, hint = why_not_made(find_reference(f"{tmp_path}::Net"))
    assert says in what
    assert bool(what) == bool(says) == bool(hint)
