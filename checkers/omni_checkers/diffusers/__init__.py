"""Rules for models and pipelines in diffusers: a package of its own, or a checkout."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omni_checkers.engine.facts import Facts
from omni_checkers.engine.files import File, read_file

EXAMPLE = "lumen"
__all__ = ["EXAMPLE", "experiments", "inputs", "read_model", "surroundings"]


def read_model(path: Path) -> tuple[Facts, list[File]]:
    """The facts about one integration, and its files."""
    files = {file: read_file(file) for file in inputs(path)}
    return Facts({"path": path, "files": files, "kinds": frozenset()}, {}), list(files.values())


def experiments(paths: Sequence[Path], level: str) -> dict[Path, dict[str, Any]]:
    """Nothing yet: no rule runs a model."""
    return {path: {} for path in paths}


def surroundings(path: Path) -> list[Path]:
    """Nothing yet: no rule looks around a model."""
    return []


def inputs(path: Path) -> list[Path]:
    """Every file of Python that the integration has: in a checkout also that of its model."""
    from omni_kit.targets.diffusers.model_dir import find_model_dir

    found = find_model_dir(path)
    return sorted({*found.path.glob("*.py"), found.model_file})
