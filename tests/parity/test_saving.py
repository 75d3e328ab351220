"""What the framework's own saver does, beside the export that is compared."""

from pathlib import Path

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides

from .conftest import MODELING, Plant


def test_a_tensor_that_the_frameworks_saver_casts_is_said(veomni_models: Path, sides: Sides) -> None:
    report = run_parity(veomni_models / "deepseek_v3", ["roundtrip", "forward"], sides=sides)
    said = [note for note in report.notes if "own saver" in note]
    assert len(said) == 1
    assert "e_score_correction_bias" in said[0]
    report = run_parity(veomni_models / "llama", ["roundtrip", "forward"], sides=sides)
    assert not [note for note in report.notes if "own saver" in note]


def test_a_distributed_checkpoint_that_cannot_be_resumed_from_fails(plant: Plant, sides: Sides) -> None:
    drops = 'self._register_load_state_dict_pre_hook(lambda state, *_: state.pop("lm_head.weight", None))'
    edits = {MODELING: [("self.post_init()", f"self.post_init()\n        {drops}")]}
    level = run_parity(plant("resumed", edits), ["roundtrip"], sides=sides).level("roundtrip")

    assert level.status == "fail"
    assert "VeOmni's distributed checkpoint ends in RuntimeError" in level.reason
    assert run_parity(plant("resumable", {}), ["roundtrip"], sides=sides).level("roundtrip").status == "pass"
