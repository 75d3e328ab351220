"""Rules for pipelines in SGLang-diffusion: a plugin package, or a pipeline inside SGLang itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omni_checkers.engine.facts import Facts
from omni_checkers.engine.files import File

EXAMPLE = "qwen"
__all__ = ["EXAMPLE", "experiments", "inputs", "read_model", "surroundings"]


def read_model(path: Path) -> tuple[Facts, list[File]]:
    """Return the facts about one integration, and its files."""
    from omni_checkers.sglang_diffusion.facts.model import model_facts

    return model_facts(path)


def experiments(paths: Sequence[Path], level: str) -> dict[Path, dict[str, Any]]:
    """Run pipelines, and return the facts: path -> fact -> value."""
    from omni_checkers.sglang_diffusion.runs.experiments import experiments

    return experiments(paths, level)


def surroundings(path: Path) -> list[Path]:
    """Return SGLang's package of diffusion, around the pipeline or installed."""
    from omni_checkers.sglang_diffusion.facts.sources import sources_of
    from omni_kit.errors import BadInput
    from omni_kit.targets.sglang_diffusion.pipeline_dir import find_pipeline_dir

    try:
        package = sources_of(find_pipeline_dir(path)).diffusion
    except BadInput:
        return []
    return [package] if package is not None else []


def inputs(path: Path) -> list[Path]:
    """Return every file of the integration, its README, and the record of its scaffold."""
    from omni_checkers.sglang_diffusion.examples import README
    from omni_checkers.sglang_diffusion.facts.model import own_files
    from omni_kit.record import ANSWERS, BASE

    return [*own_files(path), *(file for name in (README, ANSWERS, BASE) if (file := path / name).is_file())]
