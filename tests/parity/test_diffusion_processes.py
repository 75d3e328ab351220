"""Diffusion transformers of VeOmni in several processes."""

from pathlib import Path

import pytest

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides


@pytest.mark.sweep
def test_sequences_and_weights_are_shared_as_in_one_process(denoisers: Path, sides: Sides) -> None:
    report = run_parity(denoisers / "qwen_image", ["sp", "fsdp", "ep"], sides=sides)

    assert [level.status for level in report.levels] == ["pass", "pass", "skip"]
    assert report.level("sp").reason == "ulysses=2, ulysses=4 as one process"
    assert report.level("fsdp").reason == "fsdp=2, fsdp=4 as one process"


@pytest.mark.sweep
def test_a_number_of_tokens_that_four_processes_cannot_share_is_veomnis_own_fault(
    denoisers: Path, sides: Sides
) -> None:
    """Wan pads the tokens that it shares out, but not the rotary embedding that goes with them."""
    level = run_parity(denoisers / "wan_t2v", ["sp"], sides=sides).level("sp")

    assert level.status == "fail"
    assert "(ulysses=4)" in level.reason
    assert "modeling_wan_transformer.py" in level.reason
