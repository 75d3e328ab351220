"""Names of models that are too large to be made."""

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides

from .conftest import CONVERTER, Plant


def test_a_hundred_experts_and_layers_are_converted_by_name(plant: Plant, sides: Sides) -> None:
    found = run_parity(plant("numbered", {}), ["keys"], sides=sides).level("keys")
    assert found.status == "pass", found.reason
    assert found.reason.endswith(" tensors, 101 layers by name, 101 experts by name")


def test_a_converter_of_two_digits_is_named(plant: Plant, sides: Sides) -> None:
    pattern = r"^(.+\.mlp)\.experts\.(\d\d?)\.(gate_proj|up_proj|down_proj)\.weight$"
    known = "_EXPERT_PATTERN = PER_EXPERT_SPLIT_TO_FUSED_PATTERN"
    edits = {CONVERTER: [(known, f'import re\n_EXPERT_PATTERN = re.compile(r"{pattern}")')]}
    found = run_parity(plant("two_digits", edits), ["roundtrip", "keys"], sides=sides)
    assert found.level("roundtrip").status == "pass"
    assert found.level("keys").status == "fail"
    assert "experts" in found.level("keys").reason
