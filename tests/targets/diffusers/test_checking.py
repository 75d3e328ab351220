"""What ruff finds in a written file is repaired, or is a to-do at its line."""

from omni_kit.targets.diffusers.porting.checking import repaired

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
    text = "class A:\n    @classmethod\n    def made(cls: B):\n        return cls\n"
    found = repaired(text).split("\n")
    assert "Undefined name `B`" in found[1]
    assert found[2].strip() == "@classmethod"
