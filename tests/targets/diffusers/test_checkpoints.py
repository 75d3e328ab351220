"""A conversion reads what authors publish: safetensors, pickles of tensors alone, and averaged weights."""

import argparse
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file

from omni_kit.resources import resource_dir

SCRIPT = resource_dir("reference_models") / "diffusers" / "lumen" / "convert_lumen_to_diffusers.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    pytest.importorskip("diffusers")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPT.parent.parent)
        spec = importlib.util.spec_from_file_location("convert_lumen", SCRIPT)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name in [name for name in sys.modules if name.partition(".")[0] == "lumen"]:
            del sys.modules[name]
        return module


ONE, OTHER = (
    {"a.weight": torch.zeros(2), "b.weight": torch.zeros(3)},
    {"a.weight": torch.ones(2), "b.weight": torch.ones(3)},
)


def test_safetensors_are_read(script: ModuleType, tmp_path: Path) -> None:
    save_file(ONE, tmp_path / "model.safetensors")
    assert script.weights(tmp_path / "model.safetensors").keys() == ONE.keys()


def test_averaged_weights_come_first(script: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "last.pt"
    torch.save({"model": ONE, "ema": OTHER, "args": argparse.Namespace(lr=0.1), "step": 3}, file)
    assert bool(script.weights(file)["a.weight"].all())
    assert not bool(script.weights(file, ema=False)["a.weight"].any())


def test_names_lose_what_wrappers_put_in_front(script: ModuleType, tmp_path: Path) -> None:
    torch.save({"state_dict": {f"module._orig_mod.{name}": one for name, one in ONE.items()}}, tmp_path / "last.pth")
    assert script.weights(tmp_path / "last.pth").keys() == ONE.keys()


def test_a_pickle_that_runs_code_is_refused(script: ModuleType, tmp_path: Path) -> None:
    torch.save({"model": Path("lamp")}, tmp_path / "last.pt")
    with pytest.raises(Exception, match=r"(?i)weights.only|unsupported"):
        script.weights(tmp_path / "last.pt")
