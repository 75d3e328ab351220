"""What ruff finds in a written file is repaired, or is a to-do at its line."""

from pathlib import Path

import pytest

from omni_kit.targets.diffusers.porting.attention import Attended
from omni_kit.targets.diffusers.porting.checking import repaired
from omni_kit.targets.diffusers.porting.forward import Forward
from omni_kit.targets.diffusers.porting.port import Port
from omni_kit.targets.diffusers.porting.syntax import MARK
from omni_kit.targets.diffusers.transformer.found_toy import imported
from tests.targets.diffusers.porting.small_models import ASKED, SPLIT, attention, ported

LATER = """class Processor:
    def __call__(self, attn: Attention, x):
        return x


class Attention:
    pass
"""


def test_an_annotation_that_names_what_comes_later_is_quoted() -> None:
    found = repaired(LATER)
    assert 'attn: "Attention"' in found
    assert "TODO" not in found


def test_an_annotation_that_names_what_is_nowhere_is_left_out() -> None:
    found = repaired('def f(attn: Lamp, x: int = 1) -> "Lamp | None":\n    y: Lamp = x\n    return y\n')
    assert found == "def f(attn, x: int = 1):\n    y = x\n    return y\n"


def test_an_undefined_name_is_a_to_do_at_its_statement() -> None:
    found = repaired("def f(x):\n    y = (\n        lamp(x)\n    )\n    return y\n").split("\n")
    assert found[1].strip().startswith("# TODO(omni-kit): Undefined name `lamp`")
    assert found[2] == "    y = ("


def test_a_sound_file_stays_as_it_is() -> None:
    text = "import torch\n\n\ndef f(x):\n    return torch.relu(x)\n"
    assert repaired(text) == text


TYPES = """
import torch.nn as nn

HALF = (nn.Conv2d, sp.SparseConv, nn.Linear)


def half(one):
    if isinstance(one, HALF):
        one.half()
"""


def test_an_undefined_class_of_which_nothing_is_made_leaves_a_tuple_of_types() -> None:
    assert "HALF = (nn.Conv2d, nn.Linear)" in repaired(TYPES)
    assert "TODO" not in repaired(TYPES)


def test_an_undefined_class_that_is_made_is_a_to_do() -> None:
    made = repaired(TYPES.replace("isinstance(one, HALF)", "HALF[1]()"))
    assert "sp.SparseConv" in made
    assert "Undefined name `sp`" in made


def test_a_to_do_stands_in_front_of_decorators() -> None:
    text = "class A:\n    @classmethod\n    def made(cls, one=B):\n        return cls\n"
    found = repaired(text).split("\n")
    assert "Undefined name `B`" in found[1]
    assert found[2].strip() == "@classmethod"


GUARDED = """import torch
from importlib.util import find_spec

if find_spec("PACKAGE") is not None:

    class Table:
        width = 4


def made():
    return Table()


table = made()
"""


@pytest.mark.parametrize(("package", "line"), [("no_such_package", 11), ("torch", None)])
def test_a_file_that_cannot_be_imported_has_a_to_do(package: str, line: int | None) -> None:
    file = Port(GUARDED.replace("PACKAGE", package), "Net", Attended(), Forward(), ())
    found = imported(file)
    if line is None:
        assert found is file
        return
    what = "this file cannot be imported: NameError: name 'Table' is not defined"
    assert found.todo == ((line, what),)
    assert found.text.split("\n")[line - 1].strip() == f"# {MARK}: {what}"


def test_a_text_without_a_value_is_a_plain_text(tmp_path: Path) -> None:
    found = ported(tmp_path, attention(f'{SPLIT}\nassert dim, f"no width"\nassert dim, f"{{dim}}"', ASKED))
    assert 'assert dim, "no width"' in found.text
    assert 'assert dim, f"{dim}"' in found.text
    assert not any("F541" in what for _, what in found.todo)
