"""Real configs and small worlds to run patchgen in."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from omni_kit.patchgen import ConfigResult, run_configs
from omni_kit.pysource.library import find_library

FIXTURES = Path(__file__).parents[1] / "fixtures" / "patchgen"
World = Callable[..., Path]
# What is read of transformers for one model, besides its folder.
_NEEDED = ("__init__.py", "modeling_layers.py", "modeling_utils.py", "configuration_utils.py", "modeling_rope_utils.py",
           "activations.py", "core_model_loading.py", "conversion_mapping.py")  # fmt: skip


def package_dir(name: str) -> Path:
    """The directory of an installed package, which is not imported."""
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.submodule_search_locations
    return Path(next(iter(found.submodule_search_locations)))


VEOMNI_CONFIGS = sorted((package_dir("veomni") / "models" / "transformers").glob("*/*_patch_gen_config.py"))


@pytest.fixture(scope="session")
def veomni_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ConfigResult]:
    """What each config that VeOmni ships generates, by the config's file name."""
    results = run_configs(list(VEOMNI_CONFIGS), tmp_path_factory.mktemp("veomni"), diff=True)
    return {path.stem: result for path, result in zip(VEOMNI_CONFIGS, results, strict=True)}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Writes an upstream module and a config that patches it; returns the config's path.

    The config's text needs no head: PatchConfig is imported and `config` is made, unless it does so itself.
    """

    def make(upstream: str, config: str, name: str = "small_patch_gen_config.py", arguments: str = "") -> Path:
        (tmp_path / "upstream_module.py").write_text(dedent(upstream).lstrip("\n"), encoding="utf-8")
        head = "from veomni.patchgen.patch_spec import PatchConfig, PatchType, create_patch_from_external\n\n"
        head += f'config = PatchConfig(source_module="upstream_module", target_file="after.py"{arguments})\n\n'
        body = dedent(config).lstrip("\n")
        path = tmp_path / name
        path.write_text(body if "PatchConfig(" in body else head + body, encoding="utf-8")
        return path

    return make


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """A copy of what is read of transformers for one model."""
    root, copy = find_library("transformers").root, tmp_path / "transformers"
    (copy / "models").mkdir(parents=True)
    for name in _NEEDED:
        shutil.copy(root / name, copy / name)
    for folder in ("olmoe", "auto"):
        shutil.copytree(root / "models" / folder, copy / "models" / folder)
    shutil.copy(root / "models" / "__init__.py", copy / "models" / "__init__.py")
    return copy
