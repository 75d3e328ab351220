"""`assert_parity`: what a failing test prints."""

from pathlib import Path

import pytest

from omni_kit.parity import LevelResult, ParityReport, assert_parity
from omni_kit.parity.assertion import explain
from omni_kit.parity.processes.workers import Sides
from omni_kit.parity.report.report import Divergence

from .conftest import MODELING, Plant


def test_a_sound_integration_passes_and_returns_its_report(veomni_models: Path, sides: Sides) -> None:
    assert assert_parity(veomni_models / "llama", ["forward"], sides=sides).ok


def test_a_failure_names_the_module_the_places_and_the_command(plant: Plant, sides: Sides) -> None:
    scaled = {MODELING: [("self.act_fn(gate) * up\n", "self.act_fn(gate) * up * 1.01\n")]}

    with pytest.raises(AssertionError) as caught:
        assert_parity(plant("asserted", scaled), ["keys", "forward"], sides=sides)

    text = str(caught.value)
    assert "first divergence: model.layers.0.mlp.experts adds" in text
    assert "patched_modeling_qwen3_moe_gpu.py:" in text
    assert "modeling_qwen3_moe.py:" in text
    assert "rerun: omni-kit parity --replay " in text
    assert len(text.splitlines()) < 10


def test_levels_that_passed_are_not_repeated() -> None:
    levels = [LevelResult("import", "pass", "veomni 1"), LevelResult("keys", "fail", "2 tensors missing: a, b")]
    report = ParityReport("here", "olmoe", levels, first_divergence=Divergence("m", 0.5, 0.0, "what it returns"))

    text = explain(report)

    assert "import: pass" not in text
    assert "keys: fail: 2 tensors missing: a, b" in text
    assert "m adds 5.0e-01 to what it returns (inherited 0.0e+00)" in text
