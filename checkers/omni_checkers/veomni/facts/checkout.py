"""Files of VeOmni's repository that mention models: tests and configurations."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from omni_kit.files import files_matching
from omni_kit.targets.veomni.model_dir import ModelDir
from omni_kit.upstream.kinds import MULTIMODAL, Kind


@dataclass(frozen=True)
class Suite:
    """A file of VeOmni's tests that lists models; `kinds` is empty for one that lists all."""

    path: str
    what: str
    kinds: frozenset[Kind] = frozenset()


SUITES = (
    Suite("tests/models/test_models_patch.py", "forward and backward next to transformers'"),
    Suite("tests/e2e/test_e2e_parallel.py", "losses under parallelism"),
    Suite("tests/models/test_vlm_trainer.py", "freezing of the vision tower", frozenset({Kind.vlm, Kind.vlm_moe})),
    Suite("tests/distributed/test_dummy_forward.py", "batches where one rank has no pictures", MULTIMODAL),
    Suite("tests/models/test_model_forward_no_implicit_sync.py", "waits for the device", MULTIMODAL),
    Suite("tests/models/utils.py", "which dummy data it reads", MULTIMODAL),
)

_CONFIGS = (".yaml", ".yml", ".json")


def around(model_dir: ModelDir) -> list[Path]:
    """Return the files outside the package that rules look at."""
    if model_dir.style != "in-tree":
        return []
    lists = [model_dir.sys_path / suite.path for suite in SUITES]
    toys = sorted((model_dir.sys_path / "tests" / "toy_config").glob("*/*"))
    return [*lists, *toys, *_configs(model_dir)]


def training_configs(model_dir: ModelDir) -> Iterator[Path]:
    """Return the training files below `configs/` that speak of a model, by their folder or their name."""
    return (file for file in _configs(model_dir) if file.suffix != ".json")


def _configs(model_dir: ModelDir) -> Iterator[Path]:
    """Yield the training files and the models' own configs below `configs/`, of a model."""
    names = {model_dir.path.name, *model_dir.registered}
    for file in files_matching(model_dir.sys_path / "configs", "**/*"):
        if file.suffix in _CONFIGS and names & {file.parent.name, file.stem}:
            yield file
