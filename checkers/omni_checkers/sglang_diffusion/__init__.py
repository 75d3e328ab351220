"""Rules for pipelines in SGLang-diffusion: plugins, and the folders of stages inside SGLang's own package."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omni_checkers.engine.facts import Facts
from omni_checkers.engine.files import File

EXAMPLE = "served"
__all__ = ["EXAMPLE", "experiments", "inputs", "read_model", "surroundings"]


def read_model(path: Path) -> tuple[Facts, list[File]]:
    """The facts about one pipeline, and its files."""
    from omni_checkers.sglang_diffusion.facts.pipeline import pipeline_facts

    return pipeline_facts(path)


def inputs(path: Path) -> list[Path]:
    """Every file that a verdict on the pipeline at `path` depends on."""
    from omni_checkers.sglang_diffusion.facts.places import files_of

    return files_of(path)


def experiments(paths: Sequence[Path], level: str) -> Mapping[Path, Mapping[str, Any]]:
    """No rule needs a run yet."""
    return {path: {} for path in paths}


def surroundings(path: Path) -> list[Path]:
    """What a pipeline imports from does not change while people work on it."""
    return []
