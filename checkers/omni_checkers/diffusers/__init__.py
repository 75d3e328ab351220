"""Rules for models and pipelines in diffusers: a package of its own, or parts of diffusers itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omni_checkers.engine.facts import Facts
from omni_checkers.engine.files import File

EXAMPLE = "lumen"
__all__ = ["EXAMPLE", "experiments", "inputs", "read_model", "surroundings"]


def read_model(path: Path) -> tuple[Facts, list[File]]:
    """Return the facts about one integration, and its files."""
    from omni_checkers.diffusers.facts.model import model_facts

    return model_facts(path)


def experiments(paths: Sequence[Path], level: str) -> dict[Path, dict[str, Any]]:
    """Run models, and return the facts: path -> fact -> value."""
    from omni_checkers.diffusers.runs.experiments import experiments

    return experiments(paths, level)


def surroundings(path: Path) -> list[Path]:
    """Return the package of diffusers around a part of it: bases and copied code stand there."""
    from omni_kit.upstream.diffusers.package import package_root

    root = package_root(path)
    return [root] if root is not None else []


def inputs(path: Path) -> list[Path]:
    """Return every file of the integration."""
    from omni_checkers.diffusers.facts.sources import home_of, own_files

    return own_files(home_of(path))
