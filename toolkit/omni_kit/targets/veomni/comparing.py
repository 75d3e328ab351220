"""Shared part of every comparison of a VeOmni model directory, whatever its kind."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omni_kit.targets.sides import Candidate, finds_installed
from omni_kit.targets.veomni.installing import INSTALL_VEOMNI
from omni_kit.targets.veomni.model_dir import ModelDir

_FRAMEWORK = "omni_kit.targets.veomni.runtime.framework"
_TOY_CONFIG = "toy_config.json"


def trains(found: ModelDir) -> bool:
    """Return whether a directory has what the level `train` runs: a launcher, a maker of data, and a training file."""
    own = all((found.path / name).is_file() for name in ("train.py", "make_data.py"))
    return own and Path(f"{found.training_files}.yaml").is_file()


def candidate(
    found: ModelDir, upstream: Callable[[ModelDir], str], *, builder: str, reference: str, batch_builder: str
) -> Candidate:
    """Return a model directory and upstream, its toy made from `toy_config.json`, or without one from
    `upstream(found)`.
    """
    toy = found.path / _TOY_CONFIG
    return Candidate(
        path=found.path,
        source=str(toy) if toy.is_file() else upstream(found),
        builder=builder,
        options=_side_options(found),
        forbidden=("veomni",),
        reference=reference,
        batch_builder=batch_builder,
        requires={} if found.style == "in-tree" else {"veomni": INSTALL_VEOMNI},
        preloaded=(_FRAMEWORK, builder.partition(":")[0]) if finds_installed("veomni", found.sys_path) else (),
        editable=found.style == "plugin",
    )


def _side_options(found: ModelDir) -> Mapping[str, Any]:
    """Return the options of a directory for the side of a comparison, JSON-ready."""
    return {
        "path": str(found.path),
        "style": found.style,
        "import_name": found.import_name,
        "sys_path": str(found.sys_path),
        "registered": list(found.registered),
        "training_files": str(found.training_files),
    }
