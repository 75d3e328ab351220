"""What the candidate's process can reach of upstream's answers: nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from omni_kit.isolation.confinement import Confinement, can_confine

pytestmark = pytest.mark.skipif(not can_confine(), reason="this system cannot take rights from a process")

# Tries to read, to move and to link a file, also by way of the process that started it; prints what it could do.
TRIES = """
import os, subprocess, sys
from pathlib import Path
from omni_kit.isolation.confinement import Confinement, confine
closed, other, confined = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
if confined == "closed":
    assert confine(Confinement(closed=(str(closed),)))
if confined == "unwritable":
    assert confine(Confinement(unwritable=(str(closed),)))
secret = closed / "inner" / "secret"
ways = {
    "read": lambda: secret.read_text(),
    "write": lambda: secret.write_text("no secret"),
    "link": lambda: os.link(secret, other / "link"),
    "replace": lambda: os.replace(other / "mine", secret),
    "point elsewhere": lambda: os.symlink(other / "mine", closed / "other secret"),
    "remove": lambda: (closed / "inner" / "second").unlink(),
    "by its parent": lambda: Path(f"/proc/{os.getppid()}/root{secret}").read_text(),
    "by a child": lambda: subprocess.run(["cat", str(secret)], check=True, capture_output=True),
    "beside": lambda: (other / "own").write_text((other / "given").read_text()),
    "move away": lambda: os.rename(closed, f"{closed}-gone"),
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
    (closed / "inner" / "second").touch()
    (other / "given").write_text("given")
    (other / "mine").write_text("mine")
    told = [sys.executable, "-c", TRIES, str(closed.resolve()), str(other), confined]
    return subprocess.run(told, capture_output=True, text=True, check=True).stdout.splitlines()


class TestAProcess:
    def test_confined_it_reaches_what_lies_beside_alone(self, tmp_path: Path) -> None:
        assert tried(tmp_path, "closed") == ["beside"]
        assert (tmp_path / "closed" / "inner" / "secret").read_text() == "a secret"

    def test_it_can_read_what_it_cannot_change(self, tmp_path: Path) -> None:
        assert set(tried(tmp_path, "unwritable")) == {"read", "by a child", "beside"}
        assert (tmp_path / "closed" / "inner" / "secret").read_text() == "a secret"

    def test_otherwise_it_reaches_all(self, tmp_path: Path) -> None:
        assert {"read", "write", "link", "point elsewhere", "by a child"} <= set(tried(tmp_path, "no"))


def test_links_are_not_followed_and_the_way_itself_stays_closed(tmp_path: Path) -> None:
    closed = (tmp_path / "closed").resolve()
    closed.mkdir()
    (tmp_path / "file").touch()
    os.symlink(closed, tmp_path / "link")
    found = Confinement(closed=(str(closed),)).reachable(write=True)
    assert tmp_path.resolve() / "file" in found
    assert not any(closed.is_relative_to(place) for place in found)
    assert tmp_path.resolve() / "link" not in found
