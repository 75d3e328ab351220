"""What a merged patch needs of its class, of other patches, and of upstream's new callers."""

from pathlib import Path

import pytest

from omni_kit.patchgen.upgrade.configs import upgrade_configs
from omni_kit.patchgen.upgrade.outcome import ConfigOutcome

from .libraries import write_libraries

MODELING = """
from torch import nn


class Scorer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.other = size

    def forward(self, x):
        return x


class Gate(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = size

    def forward(self, x):
        return x * self.weight


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        if size:
            self.mlp = Gate(size)
        else:
            self.mlp = Scorer(size)

    def forward(self, x):
        x = self.mlp(x)
        return x

    def features(self, x):
        found = self.mlp(x)
        return found
"""
CONFIG = """
from omni_kit.patchgen import PatchConfig

config = PatchConfig(source_module="small.modeling", target_file="patched.py")


@config.override_method("Gate.forward")
def gate(self, x):
    note(self.weight)
    return x * self.weight


@config.override_method("Block.forward")
def block(self, x):
    x = join([self.mlp(part) for part in x])
    return x
"""
FEATURES = """

@config.override_method("Block.features")
def features(self, x):
    found = self.mlp(x)
    return found.last
"""
SCORED = MODELING.replace("self.weight = size", "self.scorer = size.scorer")
SCORED = SCORED.replace("x * self.weight", "self.scorer(x)").replace("self.other = size", "self.weight = size")
PAIR = MODELING.replace("return x * self.weight", "return x * self.weight, x")
PAIR = PAIR.replace("x = self.mlp(x)", "x, _ = self.mlp(x)")
READER = f"{MODELING}\n\nclass Model(Block):\n    def forward(self, x):\n        return self.features(x)[0]\n"


def upgraded(folder: Path, new: str, config: str = CONFIG, old: str = MODELING) -> ConfigOutcome:
    """The outcome for a newer module."""
    libraries = write_libraries(folder, "small", {"modeling": old}, {"modeling": new})
    path = folder / "a_patch_gen_config.py"
    path.write_text(config, encoding="utf-8")
    (result,) = upgrade_configs([path], *libraries, "small").configs
    return result


def conflicts(result: ConfigOutcome) -> dict[str, str]:
    """The conflicts by target."""
    return {one.target: one.reason for one in result.patches if one.status == "conflict"}


def test_an_attribute_that_only_another_class_still_has(tmp_path: Path) -> None:
    found = conflicts(upgraded(tmp_path, SCORED.replace("return self.scorer(x)", "return x * self.scorer(x)")))
    assert "Gate.forward" in found


def test_an_attribute_that_another_patch_sets_is_there(tmp_path: Path) -> None:
    made = "\n\n@config.override_method('Gate.__init__')\ndef init(self, size):\n    self.weight = size\n"
    new = MODELING.replace(
        "        super().__init__()\n        self.weight = size\n", "        self.weight: int = size\n"
    )
    assert "Gate.forward" not in conflicts(upgraded(tmp_path, new, CONFIG + made))


def test_a_call_of_a_patch_that_returns_two_results_now(tmp_path: Path) -> None:
    found = conflicts(upgraded(tmp_path, PAIR))
    assert found["Block.forward"] == "upstream's Gate.forward returns another number of results now"


def test_a_call_that_upstream_has_as_well_is_fine(tmp_path: Path) -> None:
    config = CONFIG.replace("x = join([self.mlp(part) for part in x])", "x = self.mlp(x)\n    x = join(x)")
    assert "another number" not in "".join(conflicts(upgraded(tmp_path, PAIR, config)).values())


@pytest.mark.parametrize(("config", "wanted"), [(CONFIG + FEATURES, 1), (CONFIG + FEATURES.replace(".last", ""), 0)])
def test_new_code_of_upstream_that_reads_what_the_patch_returns(tmp_path: Path, config: str, wanted: int) -> None:
    found = [one for one in conflicts(upgraded(tmp_path, READER, config)).values() if "Model.forward calls" in one]
    assert len(found) == wanted


def test_code_of_upstream_that_read_it_before_is_no_reason(tmp_path: Path) -> None:
    assert not conflicts(upgraded(tmp_path, READER.replace("[0]", "[1]"), CONFIG + FEATURES, READER))


MOVED = MODELING.replace("        self.weight = size\n", "        self.scale = Scale(size)\n")
MOVED = MOVED.replace("x * self.weight", "self.scale(x)").replace(
    "class Gate(",
    """class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = size

    def forward(self, x):
        return x * self.weight


class Gate(""",
)


def test_an_attribute_that_a_new_part_took_over_is_followed(tmp_path: Path) -> None:
    assert "Gate.forward" not in conflicts(upgraded(tmp_path, MOVED))
    text = (tmp_path / "a_patch_gen_config.py").read_text(encoding="utf-8")
    assert "note(self.scale.weight)" in text
    assert "self.weight" not in text


def test_an_attribute_that_two_new_parts_have_is_left_to_a_person(tmp_path: Path) -> None:
    two = MOVED.replace("self.scale = Scale(size)", "self.scale = Scale(size)\n        self.other = Scale(size)")
    assert "Gate.forward" in conflicts(upgraded(tmp_path, two))
