"""Every command of diffusers-add-model, with a repository in the place where the skill says that one is."""

import shutil
from pathlib import Path

import pytest

from omni_kit.skillpack import load_skills
from tests.test_skills import run_commands

UPSTREAM = Path(__file__).parents[2] / "reference_models" / "diffusers" / "_upstream"


@pytest.mark.sweep
def test_every_command_runs(tmp_path: Path) -> None:
    skill = next(skill for skill in load_skills() if skill.name == "diffusers-add-model")
    shutil.copytree(UPSTREAM, tmp_path / "repository")
    run_commands(skill, tmp_path)
