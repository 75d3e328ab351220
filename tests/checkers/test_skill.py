"""The commands of the skill review-integration run, in the order in which they stand, on the worked example."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from omni_checkers import all_rules
from omni_kit.cli import main
from omni_kit.resources import resource_dir
from omni_kit.skillpack import load_skills

SKILL = next(skill for skill in load_skills() if skill.name == "review-integration")

VERDICT = [command for command in SKILL.commands() if command.startswith("omni-kit verify")]


def test_the_commands_are_of_the_gate() -> None:
    names = {tuple(shlex.split(command)[:2]) for command in SKILL.commands()}
    assert {("omni-kit", "check"), ("omni-kit", "rules"), ("omni-kit", "patchgen")} <= names


@pytest.mark.sweep
def test_its_commands_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(resource_dir("reference_models") / "veomni" / "olmoe", tmp_path / "plugins" / "olmoe")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNI_KIT_CACHE", str(tmp_path / "cache"))
    for command in (one for one in SKILL.commands() if one not in VERDICT):
        assert main(shlex.split(command)[1:]) == 0, f"{command}\n{capsys.readouterr().out}"
    assert (tmp_path / "known.json").is_file()


@pytest.mark.sweep
@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen makes the key")
def test_the_verdict_and_its_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All stages several times: minutes."""
    shutil.copytree(resource_dir("reference_models") / "veomni" / "olmoe", tmp_path / "plugins" / "olmoe")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNI_KIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    key = tmp_path / ".ssh" / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    shutil.copy(key.with_suffix(".pub"), "author.pub")
    signed = [command for command in VERDICT if "--sign" in command]
    assert len(VERDICT) > len(signed) == 2
    for command in VERDICT:
        arguments = [os.path.expanduser(one) for one in shlex.split(command)[1:]]
        assert main(arguments) == 0, f"{command}\n{capsys.readouterr().out}"


def test_the_topics_and_ids_that_it_names_exist() -> None:
    ids = {rule.id for rule in all_rules()}
    named = set(re.findall(r"VEO\d+", SKILL.body))
    assert named
    assert all(any(rule_id.startswith(name) for rule_id in ids) for name in named)
