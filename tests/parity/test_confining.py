"""What the candidate's process can reach of upstream's answers: nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omni_kit.parity.processes.confining import beside, can_confine
from omni_kit.parity.processes.workers import Sides
from omni_kit.parity.run import run_parity
from tests.parity.conftest import MODELING, Plant

pytestmark = pytest.mark.skipif(not can_confine(), reason="this system cannot take rights from a process")

ROUTER = "router_logits = torch.nn.functional.linear(hidden_states, self.weight)"

# Tries to read, to move and to link a file, also by way of the process that started it; prints what it could do.
TRIES = """
import os, subprocess, sys
from pathlib import Path
from omni_kit.parity.processes.confining import confine
closed, other, confined = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
if confined == "yes":
    assert confine(closed)
secret = closed / "inner" / "secret"
ways = {
    "read": lambda: secret.read_text(),
    "write": lambda: secret.write_text("no secret"),
    "link": lambda: os.link(secret, other / "link"),
    "by its parent": lambda: Path(f"/proc/{os.getppid()}/root{secret}").read_text(),
    "by a child": lambda: subprocess.run(["cat", str(secret)], check=True, capture_output=True),
    "beside": lambda: (other / "own").write_text((other / "given").read_text()),
}
for name, way in ways.items():
    try:
        way()
        print(name)
    except (OSError, subprocess.CalledProcessError):
        pass
"""


def tried(tmp_path: Path, confined: str) -> list[str]:
    closed, other = tmp_path / "closed", tmp_path / "other"
    (closed / "inner").mkdir(parents=True)
    other.mkdir()
    (closed / "inner" / "secret").write_text("a secret")
    (other / "given").write_text("given")
    told = [sys.executable, "-c", TRIES, str(closed.resolve()), str(other), confined]
    return subprocess.run(told, capture_output=True, text=True, check=True).stdout.splitlines()


class TestAProcess:
    def test_confined_it_reaches_what_lies_beside_alone(self, tmp_path: Path) -> None:
        assert tried(tmp_path, "yes") == ["beside"]
        assert (tmp_path / "closed" / "inner" / "secret").read_text() == "a secret"

    def test_otherwise_it_reaches_all(self, tmp_path: Path) -> None:
        assert {"read", "write", "link", "by a child", "beside"} <= set(tried(tmp_path, "no"))


def test_links_are_not_followed_and_the_way_itself_stays_closed(tmp_path: Path) -> None:
    closed = (tmp_path / "closed").resolve()
    closed.mkdir()
    (tmp_path / "file").touch()
    os.symlink(closed, tmp_path / "link")
    found = beside(closed)
    assert tmp_path.resolve() / "file" in found
    assert not any(closed.is_relative_to(place) for place in found)
    assert tmp_path.resolve() / "link" not in found


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
