"""What the candidate's process can reach of the reference's results: nothing."""

import subprocess
from pathlib import Path

import pytest

from omni_kit.isolation.confinement import can_confine
from omni_kit.parity.processes.workers import Sides
from omni_kit.parity.run import run_parity
from tests.parity.conftest import MODELING, Plant

pytestmark = pytest.mark.skipif(not can_confine(), reason="this system cannot take rights from a process")

ROUTER = "router_logits = torch.nn.functional.linear(hidden_states, self.weight)"


def test_a_candidate_that_looks_for_the_answers_finds_none(plant: Plant, sides: Sides, tmp_path: Path) -> None:
    """It opens every file of tensors that it finds below the directory of upstream's results."""
    said = tmp_path / "said"
    (sides.closed / "planted.safetensors").write_bytes(b"whatever else is there by then")
    lines = (
        "from pathlib import Path",
        f"for file in Path({str(sides.closed)!r}).rglob('*.safetensors'):",
        "    try: size = len(file.read_bytes())",
        "    except PermissionError: size = 'closed'",
        f"    with open({str(said)!r}, 'a') as out: out.write(f'{{size}}\\n')",
        ROUTER,
    )
    thief = plant("thief", {MODELING: [(ROUTER, "\n        ".join(lines))]})

    report = run_parity(thief, ["forward"], sides=sides)

    assert report.ok
    assert set(said.read_text().split()) == {"closed"}


def test_processes_that_run_reach_a_directory_that_was_made_later(plant: Plant, tmp_path: Path) -> None:
    """What lies beside the way to the closed directory, and was made after a process began, is closed to that one."""
    with Sides(tmp_path / "logs") as sides:
        first = run_parity(plant("early", {}), ["keys"], sides=sides)
        before = sides.worker("candidate")
        assert before.reaches(tmp_path / "logs")
        later = Path(sides.closed.parent, f"{sides.closed.name}-later")
        try:
            assert not before.reaches(later)
            second = run_parity(plant("late", {}), ["keys"], sides=sides, work_dir=later)
        finally:
            subprocess.run(["rm", "-rf", str(later)], check=True)
        assert (first.ok, second.ok) == (True, True)
        assert sides.worker("candidate") is not before
