"""Scaffolded converters, fed with checkpoints that transformers saved: every tensor is what transformers holds."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from omni_kit.scaffold import new_model
from tests.conftest import Checkpoints

PROBE = Path(__file__).with_name("converter_probe.py")


def probe(plugin: Path, checkpoint: Path, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(PROBE), str(plugin), str(checkpoint), *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads((checkpoint.parent / "probe.json").read_text())
    return result


def in_memory(checkpoint: Path) -> dict[str, str]:
    """What transformers holds after loading the checkpoint: name -> digest."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    return {k: hashlib.sha256(v.contiguous().numpy().tobytes()).hexdigest() for k, v in model.state_dict().items()}


@pytest.fixture
def copied(checkpoint: Checkpoints, tmp_path: Path) -> Callable[[str], Path]:
    def make(model_type: str) -> Path:
        shutil.copytree(checkpoint(model_type), tmp_path / "run" / "ckpt")
        return tmp_path / "run" / "ckpt"

    return make


@pytest.mark.parametrize("model_type", ["olmoe", "mixtral"])
def test_split_experts(model_type: str, copied: Callable[[str], Path], tmp_path: Path) -> None:
    """Mixtral also renames: block_sparse_moe on disk is mlp in memory."""
    place = copied(model_type)
    new_model("conv", str(place), target="veomni", into=tmp_path)
    result = probe(tmp_path / "conv", place)
    truth = in_memory(place)
    assert result["error"] == ""
    assert result["tensors"] == truth
    assert result["index"].keys() == truth.keys()


def test_nested_text_config(copied: Callable[[str], Path], tmp_path: Path) -> None:
    place = copied("olmoe")
    new_model("conv", str(place), target="veomni", into=tmp_path)
    assert probe(tmp_path / "conv", place, "nested")["tensors"] == in_memory(place)


@pytest.mark.parametrize("part", ["gate_proj", "up_proj", "down_proj"])
def test_a_missing_expert_is_named(part: str, copied: Callable[[str], Path], tmp_path: Path) -> None:
    place = copied("olmoe")
    new_model("conv", str(place), target="veomni", into=tmp_path)
    lost = f"model.layers.1.mlp.experts.4.{part}.weight"
    assert lost in probe(tmp_path / "conv", place, f"drop={lost}")["error"]


def test_fused_experts_pass_through(copied: Callable[[str], Path], tmp_path: Path) -> None:
    """The same converter loads what transformers saves again after loading a fused checkpoint."""
    place = copied("olmoe")
    new_model("conv", str(place), target="veomni", into=tmp_path)
    truth = in_memory(place)
    fused = tmp_path / "run" / "fused"
    fused.mkdir()
    shutil.copy(place / "config.json", fused)
    from transformers import AutoModelForCausalLM

    state = {k: v.contiguous().numpy() for k, v in AutoModelForCausalLM.from_pretrained(place).state_dict().items()}
    save_file(state, fused / "model.safetensors")
    assert probe(tmp_path / "conv", fused)["tensors"] == truth


def test_fused_transposed_experts(
    copied: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transposed ones are transposed back, canonical ones are left alone, and anything else is an error."""
    from omni_kit.layout.taxonomy import Disk

    place = copied("olmoe")
    truth = in_memory(place)
    turned = tmp_path / "run" / "turned"
    turned.mkdir()
    shutil.copy(place / "config.json", turned)
    from transformers import AutoModelForCausalLM

    state = {k: v.contiguous().numpy() for k, v in AutoModelForCausalLM.from_pretrained(place).state_dict().items()}
    state |= {k: v.transpose(0, 2, 1).copy() for k, v in state.items() if v.ndim == 3 and "layers.0" in k}
    save_file(state, turned / "model.safetensors")

    monkeypatch.setattr(
        "omni_kit.targets.veomni.plan.expected_layout",
        lambda model: (Disk.fused_transposed, ("gate_up_proj", "down_proj")),
    )
    new_model("conv", "olmoe", target="veomni", into=tmp_path)
    assert probe(tmp_path / "conv", turned)["tensors"] == truth
    assert load_file(turned / "model.safetensors").keys() == truth.keys()
