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
