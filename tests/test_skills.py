"""The pack itself: its form, and every command of it, run as a user would."""

import contextlib
import io
import shlex
import shutil
from pathlib import Path

import pytest

from omni_kit.cli import main
from omni_kit.skillpack import Skill, load_skills
from tests.conftest import Checkpoints

SKILLS = load_skills()


def test_the_pack_is_there() -> None:
    assert {"integrate-model", "veomni-new-model"} <= {skill.name for skill in SKILLS}


@pytest.mark.parametrize("skill", SKILLS, ids=lambda s: s.name)
def test_form(skill: Skill) -> None:
    assert skill.lines < 400
    assert skill.commands(), "a skill proves its steps by commands"


@pytest.mark.parametrize("skill", SKILLS, ids=lambda s: s.name)
def test_references_exist(skill: Skill) -> None:
    """Sibling skills, reference files and reference models that a skill names are there."""
    import re

    root = skill.path.parents[2]
    names = {other.name for other in SKILLS}
    for word in re.findall(r"`([\w./-]+)`", skill.body):
        if word.startswith("references/"):
            assert (skill.path.parent / word).is_file(), word
        elif word.startswith("reference_models/"):
            assert (root / word).is_dir(), word
        elif word in {"integrate-model"} or word.startswith("veomni-"):
            assert word in names, word


_RUN = {
    "integrate-model", "veomni-new-model", "veomni-new-dit", "moe-checkpoint-layout", "sglang-diffusion-add-model",
    "diffusers-modular-pipeline",
}  # fmt: skip
RUN_HERE = [skill for skill in SKILLS if skill.name in _RUN]


# One that needs no model to be run; what the others' commands do, the tests of their rooms go through.
QUICK = "moe-checkpoint-layout"


@pytest.mark.parametrize("skill", [
    pytest.param(skill, id=skill.name, marks=() if skill.name == QUICK else pytest.mark.sweep) for skill in RUN_HERE
])  # fmt: skip
def test_every_command_runs(skill: Skill, checkpoint: Checkpoints, tmp_path: Path) -> None:
    """In order, in a directory that has what the skill says is there: checkpoints/olmoe and plugins/olmoe."""
    shutil.copytree(checkpoint("olmoe"), tmp_path / "checkpoints" / "olmoe")
    if not any("new-model" in command for command in skill.commands()):
        root = skill.path.parents[2]
        shutil.copytree(root / "reference_models" / "veomni" / "olmoe", tmp_path / "plugins" / "olmoe")
    run_commands(skill, tmp_path)


def run_commands(skill: Skill, place: Path) -> None:
    """Runs a skill's commands in `place`; each must exit 0, save where doctor finds what the machine lacks."""
    for command in skill.commands():
        words = shlex.split(command)
        assert words[0] == "omni-kit", command
        printed = io.StringIO()
        with contextlib.chdir(place), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = main(words[1:])
        assert code == 0 or (words[1], code) == ("doctor", 3), f"{command}\n{printed.getvalue()}"


def test_every_skill_has_a_test_that_runs_it() -> None:
    """Here, or beside the room that the skill is about."""
    tests = Path(__file__).parent
    elsewhere = "".join(path.read_text(encoding="utf-8") for path in tests.glob("*/test_skill*.py"))
    for skill in SKILLS:
        assert skill in RUN_HERE or skill.name in elsewhere, skill.name
