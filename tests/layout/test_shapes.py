"""Shapes are accounted, not only names: what the real loader refuses, or leaves random, is found without it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from omni_kit.layout import LayoutVerdict, check_layout
from tests.conftest import Checkpoints
from tests.layout.test_verdict import stack

Tensors = dict[str, np.ndarray]
Edit = Callable[[Tensors], None]


@pytest.fixture
def judged(checkpoint: Checkpoints, tmp_path: Path) -> Callable[..., LayoutVerdict]:
    """The verdict on a toy checkpoint whose tensors or config were changed; `truth` is what the loader says."""

    def make(model_type: str, edit: Edit | None = None, **config: Any) -> LayoutVerdict:
        source, place = checkpoint(model_type), tmp_path / "judged"
        tensors = {k: v for shard in sorted(source.glob("*.safetensors")) for k, v in load_file(shard).items()}
        if edit is not None:
            edit(tensors)
        place.mkdir()
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, place / "model.safetensors")
        given = json.loads((source / "config.json").read_text())
        (place / "config.json").write_text(json.dumps(given | config))
        return check_layout(str(place))

    return make


def codes(verdict: LayoutVerdict) -> set[str]:
    return {finding.code for finding in verdict.findings if finding.severity == "error"}


def without_gates(tensors: Tensors) -> None:
    for name in [name for name in tensors if ".experts." in name and ("gate_proj" in name or ".w1." in name)]:
        del tensors[name]


def halved(tensors: Tensors) -> None:
    stack(tensors)
    for name in [name for name in tensors if name.endswith("gate_up_proj")]:
        tensors[name] = tensors[name][:, : tensors[name].shape[1] // 2]


@pytest.mark.parametrize("model_type", ["qwen3_moe", "mixtral", "deepseek_v3"])
def test_gates_that_are_missing_everywhere(judged: Callable[..., LayoutVerdict], model_type: str) -> None:
    """All the right names come out, and half of each gate_up_proj stays empty."""
    verdict = judged(model_type, without_gates)
    assert "half-fed" in codes(verdict)
    assert verdict.accounting is not None
    assert any(name.endswith("experts.gate_up_proj") for name in verdict.accounting.missing)
    assert not verdict.ok


def test_stacks_without_gates(judged: Callable[..., LayoutVerdict]) -> None:
    assert not judged("qwen3_moe", halved).ok


def one_more(tensors: Tensors) -> None:
    for name in [name for name in tensors if ".experts.5." in name]:
        tensors[name.replace(".experts.5.", ".experts.6.")] = tensors[name]


def one_less(tensors: Tensors) -> None:
    for name in [name for name in tensors if ".experts.5." in name]:
        del tensors[name]


def wider(tensors: Tensors, where: str = ".layers.1.") -> None:
    for name in [name for name in tensors if where in name and ".experts." in name]:
        tensors[name] = np.concatenate([tensors[name]] * 2, axis=1 if "down" in name else 0)


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        (one_more, "expert-count"),
        (one_less, "incomplete-experts"),
        (wider, "shape-mismatch"),
        (lambda tensors: wider(tensors, ".layers.1.mlp.experts.2."), "shape-mismatch"),
    ],
    ids=["one more", "one less", "another width in one layer", "another width in one expert"],
)
def test_experts_that_are_not_those_of_the_model(judged: Callable[..., LayoutVerdict], edit: Edit, code: str) -> None:
    verdict = judged("qwen3_moe", edit)
    assert code in codes(verdict)
    assert verdict.accounting is not None
    assert verdict.accounting.missing
    assert not verdict.ok


@pytest.mark.parametrize("edit", [one_more, one_less, wider])
def test_the_same_of_stacked_experts(judged: Callable[..., LayoutVerdict], edit: Edit) -> None:
    def edit_and_stack(tensors: Tensors) -> None:
        edit(tensors)
        for layer in range(3):
            box = f"model.layers.{layer}.mlp.experts"
            parts = {
                leaf: [tensors.pop(f"{box}.{e}.{leaf}.weight", None) for e in range(7)]
                for leaf in ("gate_proj", "up_proj", "down_proj")
            }
            gate, up, down = (np.stack([p for p in found if p is not None]) for found in parts.values())
            tensors |= {f"{box}.gate_up_proj": np.concatenate([gate, up], 1), f"{box}.down_proj": down}

    verdict = judged("qwen3_moe", edit_and_stack)
    assert "shape-mismatch" in codes(verdict)
    assert not verdict.ok


CONTRADICTED = {
    "hidden_size": 128, "vocab_size": 98, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32,
    "num_hidden_layers": 2, "num_experts": 8, "moe_intermediate_size": 48, "num_local_experts": 4,
}  # fmt: skip


@pytest.mark.parametrize("key", CONTRADICTED)
@pytest.mark.parametrize("model_type", ["qwen3_moe", "llama"])
def test_a_config_that_the_tensors_contradict(
    judged: Callable[..., LayoutVerdict], model_type: str, key: str, checkpoint: Checkpoints
) -> None:
    """Whatever changes the model is seen; what does not (a key that the class does not read) is not held against it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    given = json.loads((checkpoint(model_type) / "config.json").read_text())

    def shapes(values: dict[str, Any]) -> dict[str, Any]:
        with torch.device("meta"):
            built = AutoModelForCausalLM.from_config(AutoConfig.for_model(**values))
        return {name: tuple(tensor.shape) for name, tensor in built.state_dict().items()}

    changes = shapes(given) != shapes(given | {key: CONTRADICTED[key]})
    verdict = judged(model_type, **{key: CONTRADICTED[key]})
    assert verdict.ok != changes, verdict.findings


def test_a_layer_more_than_the_file_has(judged: Callable[..., LayoutVerdict]) -> None:
    assert codes(judged("llama", num_hidden_layers=4)) == {"missing-parameters"}


def test_fed_twice(judged: Callable[..., LayoutVerdict]) -> None:
    def both(tensors: Tensors) -> None:
        tensors["model.model.norm.weight"] = tensors.pop("model.norm.weight")
        tensors["norm.weight"] = tensors["model.model.norm.weight"]
        tensors["model.norm.weight"] = tensors.pop("model.model.norm.weight")

    assert codes(judged("llama", both)) == {"fed-twice"}


@pytest.mark.parametrize("model_type", ["qwen3_moe", "mixtral", "gpt_oss", "llama4_text", "deepseek_v3", "gemma2"])
def test_what_transformers_saved_is_fine(judged: Callable[..., LayoutVerdict], model_type: str) -> None:
    verdict = judged(model_type)
    assert verdict.ok, verdict.findings
    assert verdict.accounting is not None
    assert verdict.accounting.proof.startswith("names and shapes")


def test_an_index_alone_is_accounted_by_names(checkpoint: Checkpoints, tmp_path: Path) -> None:
    for name in ("model.safetensors.index.json", "config.json"):
        shutil.copy(checkpoint("olmoe") / name, tmp_path)
    verdict = check_layout(str(tmp_path / "model.safetensors.index.json"))
    assert verdict.ok
    assert verdict.accounting is not None
    assert verdict.accounting.proof.startswith("names against")
