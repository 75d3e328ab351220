"""Scaffolded converters, fed with checkpoints that transformers saved: every tensor is what transformers holds."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from omni_kit.layout.loading import Loading
from omni_kit.layout.taxonomy import CONVERTERS, Disk
from omni_kit.patchgen import run_configs
from omni_kit.scaffold import new_model
from tests.conftest import Checkpoints, first
from tests.forked import run_module

PROBE = Path(__file__).with_name("converter_probe.py")


Probe = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def probe() -> Iterator[Probe]:
    """Feeds a checkpoint through a plugin's converter, all in one process."""
    command = [sys.executable, str(PROBE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(plugin: Path, checkpoint: Path, *options: str) -> dict[str, Any]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([str(plugin), str(checkpoint), *options]) + "\n")
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(process.stdout.readline())
            assert "failed" not in answer, answer
            return answer

        yield ask
        process.communicate()


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


@pytest.mark.parametrize("model_type", first(1, ["olmoe", "mixtral"]))
def test_split_experts(probe: Probe, model_type: str, copied: Callable[[str], Path], tmp_path: Path) -> None:
    """Mixtral also renames: block_sparse_moe on disk is mlp in memory."""
    place = copied(model_type)
    new_model("conv", str(place), target="veomni", into=tmp_path)
    result = probe(tmp_path / "conv", place)
    truth = in_memory(place)
    assert result["error"] == ""
    assert result["tensors"] == truth
    assert result["index"].keys() == truth.keys()


@pytest.mark.parametrize("model_type", ["ernie4_5_moe", "gemma"])
def test_a_head_whose_bias_the_config_switches_is_given_out_too(model_type: str, tmp_path: Path) -> None:
    """VeOmni initialises a module anew that lacks a parameter, also what was loaded into it; gemma's has no bias."""
    new_model("conv", model_type, target="veomni", into=tmp_path)
    converter = tmp_path / "conv" / "checkpoint_tensor_converter.py"
    text = converter.read_text(encoding="utf-8") if converter.exists() else ""
    assert ('"model.embed_tokens.weight": "lm_head.weight"' in text) == (model_type != "gemma")


def test_nested_text_config(probe: Probe, copied: Callable[[str], Path], tmp_path: Path) -> None:
    place = copied("olmoe")
    new_model("conv", str(place), target="veomni", into=tmp_path)
    assert probe(tmp_path / "conv", place, "nested")["tensors"] == in_memory(place)


@pytest.mark.parametrize("part", ["gate_proj", "up_proj", "down_proj"])
def test_a_missing_expert_is_named(probe: Probe, part: str, copied: Callable[[str], Path], tmp_path: Path) -> None:
    place = copied("olmoe")
    new_model("conv", str(place), target="veomni", into=tmp_path)
    lost = f"model.layers.1.mlp.experts.4.{part}.weight"
    assert lost in probe(tmp_path / "conv", place, f"drop={lost}")["error"]


def test_fused_experts_pass_through(probe: Probe, copied: Callable[[str], Path], tmp_path: Path) -> None:
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


Turn = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


def transposed(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Layer 0 turned; the others stay canonical and must pass through."""
    turned = {k: v.transpose(0, 2, 1).copy() for k, v in state.items() if v.ndim == 3 and "layers.0" in k}
    return {**state, **turned}


def unfused(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    result: dict[str, np.ndarray] = {}
    for name, value in state.items():
        if name.endswith("gate_up_proj"):
            gate, up = np.split(value, 2, axis=1)
            result[name.replace("gate_up_proj", "gate_proj.weight")] = gate.copy()
            result[name.replace("gate_up_proj", "up_proj.weight")] = up.copy()
        else:
            result[name.replace("experts.down_proj", "experts.down_proj.weight")] = value
    return result


def interleaved(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    result = dict(state)
    for name in [name for name in state if name.endswith("gate_up_proj")]:
        gate, up = np.split(state[name], 2, axis=1)
        result[name] = np.stack([gate, up], axis=2).reshape(state[name].shape)
    return result


def renamed(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = {"experts.gate_up_proj": "experts.input_linear.weight", "experts.down_proj": "experts.output_linear.weight"}
    return {next((k.replace(a, b) for a, b in names.items() if k.endswith(a)), k): v for k, v in state.items()}


PAIR = ("gate_up_proj", "down_proj")
LAYOUTS: dict[Disk, tuple[tuple[str, ...], Turn]] = {
    Disk.fused_transposed: (PAIR, transposed),
    Disk.stacked_unfused: (("gate_proj.weight", "up_proj.weight", "down_proj.weight"), unfused),
    Disk.fused_interleaved_rows: (PAIR, interleaved),
    Disk.fused_renamed: (("input_linear.weight", "output_linear.weight"), renamed),
}


def converted(
    probe: Probe,
    disk: Disk,
    state: dict[str, np.ndarray],
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    """What the converter for `disk` makes of `state` written in that layout."""
    names, turn = LAYOUTS[disk]
    place = tmp_path / "run" / "turned"
    place.mkdir(parents=True)
    shutil.copy(config, place / "config.json")
    save_file(turn(state), place / "model.safetensors")
    declared = Loading(CONVERTERS[disk], "as the test says", disk, names)
    monkeypatch.setattr("omni_kit.targets.veomni.text.converter.loading", lambda verdict: declared)
    new_model("conv", str(config), target="veomni", into=tmp_path)
    return probe(tmp_path / "conv", place)


@pytest.mark.parametrize("disk", LAYOUTS)
def test_stacked_experts(
    probe: Probe, disk: Disk, copied: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForCausalLM

    place = copied("olmoe")
    model = AutoModelForCausalLM.from_pretrained(place)
    state = {k: v.contiguous().numpy() for k, v in model.state_dict().items()}
    result = converted(probe, disk, state, place / "config.json", tmp_path, monkeypatch)
    assert result["error"] == ""
    assert result["tensors"] == in_memory(place)


@pytest.mark.parametrize("width", [32, 64])
def test_the_pair_decides_where_one_tensor_could_be_either(
    probe: Probe, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H == 2I makes gate_up_proj square, H == I down_proj: real defaults of several models."""
    hidden, experts, rng = 64, 6, np.random.default_rng(0)
    state = {
        f"model.layers.{layer}.mlp.experts.{leaf}": rng.standard_normal((experts, *shape), np.float32)
        for layer in range(3)
        for leaf, shape in (("gate_up_proj", (2 * width, hidden)), ("down_proj", (hidden, width)))
    }
    config = tmp_path / "config.json"
    sizes = {"hidden_size": hidden, "intermediate_size": width, "num_experts": experts}
    config.write_text(json.dumps({"model_type": "olmoe", **sizes}))
    result = converted(probe, Disk.fused_transposed, state, config, tmp_path, monkeypatch)
    assert result["error"] == ""
    assert result["tensors"] == {k: hashlib.sha256(v.tobytes()).hexdigest() for k, v in state.items()}


def test_any_other_shape_is_an_error(
    probe: Probe, copied: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"model.layers.0.mlp.experts.gate_up_proj": np.zeros((6, 81, 64), np.float32)}
    monkeypatch.setitem(LAYOUTS, Disk.fused_transposed, (PAIR, lambda given: given))
    with pytest.raises(AssertionError, match="neither"):
        converted(probe, Disk.fused_transposed, state, copied("olmoe") / "config.json", tmp_path, monkeypatch)


@pytest.mark.parametrize(("name", "path"), first(1, [
    ("Qwen2_5_VLTextModel", "model.language_model"), ("Qwen2_5_VLModel", "model"),
]))  # fmt: skip
def test_a_class_inside_reads_the_whole_models_checkpoint_and_its_own(name: str, path: str, tmp_path: Path) -> None:
    """`^visual` is of the whole model's checkpoints; the inner model's parameters begin with it."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    new_model("inside", "qwen2_5_vl", target="veomni", into=tmp_path)
    run_configs(sorted((tmp_path / "inside").glob("*_patch_gen_config.py")))
    toy = json.loads((tmp_path / "inside" / "toy_config.json").read_text(encoding="utf-8"))
    whole = AutoModelForImageTextToText.from_config(AutoConfig.for_model(**toy))
    part = whole.get_submodule(path)
    whole.save_pretrained(tmp_path / "published")
    part.save_pretrained(tmp_path / "own")
    assert any(key.startswith("visual.") for key in load_file(tmp_path / "published" / "model.safetensors"))
    save_file({key: tensor.numpy() for key, tensor in part.state_dict().items()}, tmp_path / "expected.safetensors")
    given = [tmp_path / one for one in ("expected.safetensors", "published", "own")]
    said = run_module(f"{__package__}.inner_probe", tmp_path / "inside", name, *given)
    assert json.loads(said.splitlines()[-1]) == {"published": [], "own": []}


@pytest.mark.sweep
def test_classes_inside_get_the_path_to_them_where_renamings_would_spoil_their_names(tmp_path: Path) -> None:
    for model in ("qwen2_5_vl", "olmoe"):
        new_model(f"renamed_{model}", model, target="veomni", into=tmp_path)
    spoiled, plain = (
        (tmp_path / f"renamed_{model}" / "__init__.py").read_text(encoding="utf-8") for model in ("qwen2_5_vl", "olmoe")
    )
    assert '{"Qwen2_5_VLModel": "model.", "Qwen2_5_VLTextModel": "model.language_model."}' in spoiled
    assert "staticmethod(create_renamed_olmoe_checkpoint_tensor_converter)" in plain
