"""The wheel: built, installed into an empty environment without torch, and used there."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from omni_kit.resources import resource_dir
from tests.conftest import Checkpoints

ROOT = Path(__file__).resolve().parents[1]
PROBE = """
import importlib.util, sys
assert importlib.util.find_spec("torch") is None, "torch must not be there"
import omni_kit
from omni_kit.resources import resource_dir
assert not (resource_dir("skills") / "evals").exists(), "evals stay in the repository"
print(resource_dir("skills"))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", str(place), str(ROOT)], check=True, capture_output=True
    )
    return next(place.glob("omni_kit-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and what the base install needs, pinned as CI pins it."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place / "env", with_pip=True)
    python = place / "env" / "bin" / "python"
    pip = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-c",
        str(ROOT / "constraints.txt"),
    ]
    done = subprocess.run([*pip, str(wheel)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return python


def run(python: Path, *arguments: str, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run([str(python), *arguments], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_wheel_has_at_most_three_megabytes(wheel: Path) -> None:
    assert wheel.stat().st_size <= 3 * 2**20


def test_the_wheel_has_what_stands_beside_the_code(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    skills = {path.relative_to(ROOT).as_posix() for path in (ROOT / "skills").glob("*/SKILL.md")}
    assert {f"omni_kit/.agents/{skill}" for skill in skills} <= names
    assert not any(name.startswith("omni_kit/.agents/skills/evals") for name in names), "evals stay in the repository"
    for folder in ("templates", "reference_models"):
        beside = {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).glob("*/*/__init__.py*")}
        assert {f"omni_kit/data/{path}" for path in beside} <= names
    assert {"omni_kit/__main__.py", "omni_checkers/py.typed", "omni_kit/py.typed"} <= names


@pytest.mark.sweep
def test_the_wheel_works_without_torch(installed: Path, checkpoint: Checkpoints, tmp_path: Path) -> None:
    assert "site-packages" in run(installed, "-c", PROBE, cwd=tmp_path)
    omni_kit = ("-m", "omni_kit")
    assert "check-layout" in run(installed, *omni_kit, "--help", cwd=tmp_path)
    assert "veomni-new-model" in run(installed, *omni_kit, "skills", "list", cwd=tmp_path)
    assert "omni_kit/.agents/skills" in run(installed, "-c", PROBE, cwd=tmp_path)
    assert "no findings" in run(installed, *omni_kit, "skills", "check", cwd=tmp_path)
    assert '"rules"' in run(installed, *omni_kit, "rules", "list", "--format", "json", cwd=tmp_path)
    assert "convertible" in run(installed, *omni_kit, "check-layout", str(checkpoint("olmoe")), cwd=tmp_path)
    run(installed, *omni_kit, "inspect", "olmoe", cwd=tmp_path)
    run(installed, *omni_kit, "new-model", "olmoe", "--from", str(checkpoint("olmoe")), cwd=tmp_path)
    run(installed, *omni_kit, "patchgen", "run", "olmoe/olmoe_gpu_patch_gen_config.py", cwd=tmp_path)
    run(installed, *omni_kit, "check", "olmoe", cwd=tmp_path)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    parity = [str(installed), *omni_kit, "parity", "olmoe"]
    done = subprocess.run(parity, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 3
    assert "pip install" in done.stderr


def test_resources_are_in_a_checkout_too() -> None:
    for name in ("templates", "skills", "reference_models"):
        assert any(resource_dir(name).iterdir())
