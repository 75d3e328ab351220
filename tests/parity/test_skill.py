"""The commands of the skill parity-testing run, in the order in which they stand, on the worked example."""

import shlex
import shutil
from pathlib import Path

import pytest

from omni_kit.cli import main
from omni_kit.parity import LEVELS
from omni_kit.resources import resource_dir
from omni_kit.skillpack import load_skills

SKILL = next(skill for skill in load_skills() if skill.name == "parity-testing")


@pytest.mark.sweep
def test_its_commands_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(resource_dir("reference_models") / "veomni" / "olmoe", tmp_path / "plugins" / "olmoe")
    monkeypatch.chdir(tmp_path)
    for command in SKILL.commands():
        assert main(shlex.split(command)[1:]) == 0, f"{command}\n{capsys.readouterr().out}"
    assert (tmp_path / "parity.html").is_file()
    assert "located" in capsys.readouterr().out


@pytest.mark.sweep
def test_what_is_kept_is_replayed_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two commands of the section on fixing, on an integration with a fault."""
    model = tmp_path / "plugins" / "olmoe"
    shutil.copytree(resource_dir("reference_models") / "veomni" / "olmoe", model)
    modeling = model / "generated" / "patched_modeling_olmoe_gpu.py"
    text = modeling.read_text(encoding="utf-8")
    assert "self.act_fn(gate) * up\n" in text
    modeling.write_text(text.replace("self.act_fn(gate) * up\n", "self.act_fn(gate) * up * 1.01\n"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    said = [line.strip() for line in SKILL.body.splitlines() if line.startswith("    omni-kit parity")]

    assert len(said) == 2
    for command in said:
        assert main(shlex.split(command)[1:]) == 1, command


def test_it_names_every_level() -> None:
    assert all(f"`{level}`" in SKILL.body for level in LEVELS)
