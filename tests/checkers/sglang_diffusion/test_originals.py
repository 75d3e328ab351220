"""Faults in derived code are found without the scaffold's record: in its files, and in functions that were copied."""

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from omni_checkers import check
from omni_kit.record import ANSWERS, BASE
from omni_kit.scaffold import new_model

FAULTS = {
    "another sign of the time": ("steps.py", "current_timestep = 1 - t /", "current_timestep = t /"),
    "another sign of the prediction": ("steps.py", "noise_pred = -noise_pred", "noise_pred = noise_pred"),
    "another scale": ("pipeline_config.py", "arch.scaling_factor, arch.shift_factor", "1.0, arch.shift_factor"),
    "another scale of attention": ("dit.py", "softmax_scale=scale", "softmax_scale=None"),
    "another precision of encoders": ("loaders.py", ", torch_dtype=dtype)", ")"),
    "another default": ("sampling_params.py", "guidance_scale: float = 4.0", "guidance_scale: float = 7.0"),
    "conditions of the other branch": (
        "steps.py", "encoder_hidden_states=negative_prompt_embeds", "encoder_hidden_states=prompt_embeds",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The files of a scaffold, without its record."""
    place = tmp_path_factory.mktemp("scaffold")
    new_model("my_lumina", "Lumina2Pipeline", target="sglang-diffusion", into=place)
    found = {file.name: file.read_text(encoding="utf-8") for file in (place / "my_lumina").iterdir() if file.is_file()}
    return {name: text for name, text in found.items() if name not in (ANSWERS, BASE)}


def _found(place: Path, files: Mapping[str, str]) -> list[str]:
    (place / "my_lumina").mkdir()
    for name, text in files.items():
        (place / "my_lumina" / name).write_text(text, encoding="utf-8")
    report = check([place / "my_lumina"], select=["SGD602"])
    assert [one.status for one in report.results] == ["fail" if report.findings else "pass"]
    return [one.message for one in report.findings]


def test_a_scaffold_without_its_record_is_quiet(files: Mapping[str, str], tmp_path: Path) -> None:
    assert _found(tmp_path, files) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_without_the_record(fault: str, files: Mapping[str, str], tmp_path: Path) -> None:
    name, old, new = FAULTS[fault]
    assert old in files[name]
    assert len(_found(tmp_path, {**files, name: files[name].replace(old, new, 1)})) == 1


def test_a_fault_is_found_in_classes_under_other_names_in_one_other_file(
    files: Mapping[str, str], tmp_path: Path
) -> None:
    texts = {name: text.replace("my_lumina.steps", "my_lumina.all") for name, text in files.items()}
    moved = f"{texts.pop('steps.py')}\n\n{texts.pop('dit_config.py')}".replace("MyLuminaSteps", "Calls")
    renamed = {name: text.replace("MyLuminaSteps", "Calls") for name, text in texts.items()}
    assert _found(tmp_path, {**renamed, "all.py": moved}) == []
    (tmp_path / "second").mkdir()
    changed = moved.replace("cond_norm / noise_norm", "noise_norm / cond_norm", 1)
    assert len(_found(tmp_path / "second", {**renamed, "all.py": changed})) == 1


def _handwritten(files: Mapping[str, str], old: str, new: str) -> dict[str, str]:
    """The files with one function of the steps alone, as a person copies it."""
    tree = ast.parse(files["steps.py"])
    copied = next(one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == "before_steps")
    copied.name = "prepare"
    assert old in ast.unparse(copied)
    rest = {name: text for name, text in files.items() if name != "steps.py"}
    return {**rest, "parts.py": ast.unparse(copied).replace(old, new, 1)}


def test_a_copied_function_with_words_of_its_own_is_quiet(files: Mapping[str, str], tmp_path: Path) -> None:
    assert _found(tmp_path, _handwritten(files, "device = self._execution_device", "device = self.where()")) == []


def test_a_fault_in_a_copied_function_is_found(files: Mapping[str, str], tmp_path: Path) -> None:
    found = _found(tmp_path, _handwritten(files, "get('base_shift', 0.5)", "get('base_shift', 0.05)"))
    assert len(found) == 1
    assert "prepare differs from " in found[0]
