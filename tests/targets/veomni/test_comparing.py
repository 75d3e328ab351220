"""The modules that the processes of candidates share."""

import shutil
from pathlib import Path

from omni_kit.parity.candidate import find_candidate
from omni_kit.resources import resource_dir

OLMOE = resource_dir("reference_models") / "veomni" / "olmoe"


def test_a_candidate_next_to_another_veomni_imports_that_one(tmp_path: Path) -> None:
    shutil.copytree(OLMOE, tmp_path / "olmoe", ignore=shutil.ignore_patterns("__pycache__"))
    assert find_candidate(tmp_path / "olmoe").preloaded == (
        "omni_kit.targets.veomni.runtime.framework",
        "omni_kit.targets.veomni.runtime.side",
    )
    (tmp_path / "veomni").mkdir()
    assert find_candidate(tmp_path / "olmoe").preloaded == ()


def test_models_of_the_installed_veomni_share_it(tmp_path: Path) -> None:
    from importlib.util import find_spec

    spec = find_spec("veomni")
    assert spec is not None
    models = Path(str(spec.origin)).parent / "models" / "transformers"
    assert find_candidate(models / "qwen3_moe").preloaded != ()
    checkout = tmp_path / "veomni" / "models" / "transformers"
    shutil.copytree(models / "qwen3_moe", checkout / "qwen3_moe")
    for folder in (checkout, checkout.parent, checkout.parent.parent):
        (folder / "__init__.py").touch()
    assert find_candidate(checkout / "qwen3_moe").preloaded == ()
