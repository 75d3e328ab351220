"""The commands of the skill run, in the order in which they stand, on a model that is laid out as it says."""

import re
import shlex
from pathlib import Path

import pytest

from omni_kit.cli import main
from omni_kit.patchgen.codes import DEFINITIONS
from omni_kit.resources import resource_dir
from tests.patchgen.conftest import VEOMNI_CONFIGS, package_dir

SKILL = resource_dir("skills") / "veomni-patchgen-migration" / "SKILL.md"


def commands() -> list[list[str]]:
    blocks = re.findall(r"```bash\n(.*?)```", SKILL.read_text(encoding="utf-8"), re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines() if line.strip()]


def test_there_are_commands() -> None:
    found = commands()
    assert len(found) > 8
    assert found[0][:2] == ["omni-kit", "upgrade"]
    assert all(command[:2] == ["omni-kit", "patchgen"] for command in found[1:])
    assert {command[2] for command in found[1:]} == {"run", "check", "list", "drift", "upgrade"}


def test_commands_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = next(p for p in VEOMNI_CONFIGS if p.stem == "llama_gpu_patch_gen_config")
    place = tmp_path / "models" / "llama"
    place.mkdir(parents=True)
    (place / config.name).write_text(config.read_text(encoding="utf-8"), encoding="utf-8")
    for version in ("old", "new"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "transformers").symlink_to(package_dir("transformers"))
    monkeypatch.chdir(tmp_path)
    here = {"5.9.0": "old", "5.23.0": "new"}
    for command in commands()[1:]:  # the whole bump compares models, which has tests of its own
        command = [here.get(word, word) for word in command]
        assert main(command[1:]) == 0, command
    assert (place / "generated" / "patched_modeling_llama_gpu.py").is_file()
    assert (tmp_path / "preview" / "patched_modeling_llama_gpu.diff").is_file()


def test_codes_that_it_names_exist() -> None:
    text = SKILL.read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", text))
    assert named <= set(DEFINITIONS) | {"omni-kit"} | {folder.name for folder in resource_dir("skills").iterdir()}
    assert len(named) > 8


def test_it_is_short_enough_to_load() -> None:
    assert len(SKILL.read_text(encoding="utf-8").splitlines()) < 400
