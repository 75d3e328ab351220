"""Rules for VeOmni integrations of transformers models: a plugin package, or a directory of VeOmni itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omni_checkers.engine.facts import Facts
from omni_checkers.engine.files import File
from omni_kit.files import files_matching

_READ = {".py", ".json", ".md", ".toml", ".yaml", ".yml"}
EXAMPLE = "olmoe"
__all__ = ["EXAMPLE", "experiments", "inputs", "prepare", "read_model", "surroundings"]


def read_model(path: Path) -> tuple[Facts, list[File]]:
    """Return the facts about one model directory, and its files."""
    from omni_checkers.veomni.facts.model import model_facts

    return model_facts(path)


def experiments(paths: Sequence[Path], level: str) -> dict[Path, dict[str, Any]]:
    """Run models, and return the facts: path -> fact -> value."""
    from omni_checkers.veomni.runs.experiments import experiments

    return experiments(paths, level)


def prepare(paths: Sequence[Path]) -> None:
    """Begin to import what runs of these models need."""
    from omni_checkers.veomni.runs.experiments import begin

    begin(paths)


def surroundings(path: Path) -> list[Path]:
    """Return the VeOmni around the model, or the installed one, and the integrations next to it."""
    from omni_checkers.veomni.facts.code_clones import directories_beside
    from omni_checkers.veomni.facts.constants import veomni_package
    from omni_kit.errors import BadInput
    from omni_kit.targets.veomni.model_dir import find_model_dir

    try:
        model_dir = find_model_dir(path)
    except BadInput:
        return []
    package = veomni_package(model_dir)
    beside = [folder for folder in directories_beside(model_dir) if package not in folder.parents]
    return [*([package] if package is not None else []), *beside]


def inputs(path: Path) -> list[Path]:
    """Return every file that a verdict on the model at `path` depends on: its own, and those around it that speak of
    it.
    """
    from omni_checkers.veomni.facts.checkout import around
    from omni_kit.errors import BadInput
    from omni_kit.targets.veomni.model_dir import find_model_dir, located

    own = [file for file in files_matching(path, "**/*") if file.suffix in _READ]
    try:
        model_dir = find_model_dir(path)
    except BadInput:
        model_dir = located(path.resolve(), {})
    return [*own, path.parent / "__init__.py", *around(model_dir)]
