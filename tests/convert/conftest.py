"""Toy checkpoints in which every element differs, and reading what a conversion wrote."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

Toys = Callable[[str], Path]
Tensors = dict[str, np.ndarray]
Stored = Callable[[str, Tensors], Path]


def load(place: Path) -> Tensors:
    """All tensors of a checkpoint directory."""
    found: Tensors = {}
    for shard in sorted(place.glob("*.safetensors")):
        found |= load_file(shard)
    return found


def assert_equal(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> None:
    """The same names, and for each the same dtype, shape and bits."""
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        assert found[name].tobytes() == tensor.tobytes(), name


@pytest.fixture(scope="session")
def toy(toy_model: Callable[[str], Any], tmp_path_factory: pytest.TempPathFactory) -> Toys:
    """A toy checkpoint of a model_type with random values, sharded, by transformers' own save_pretrained."""
    made: dict[str, Path] = {}

    def make(model_type: str) -> Path:
        if model_type not in made:
            import torch

            torch.manual_seed(0)
            model = toy_model(model_type)
            with torch.no_grad():
                for tensor in (*model.parameters(), *model.buffers()):
                    if tensor.is_floating_point():
                        tensor.copy_(torch.randn_like(tensor))
            made[model_type] = tmp_path_factory.mktemp("toys") / model_type
            model.save_pretrained(made[model_type], max_shard_size="60KB")
        return made[model_type]

    return make


@pytest.fixture
def stored(toy: Toys, tmp_path: Path) -> Stored:
    """A checkpoint of one file with given tensors and the config of a toy."""

    def make(model_type: str, tensors: Tensors) -> Path:
        place = tmp_path / "stored"
        place.mkdir()
        ordered = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
        save_file(ordered, place / "model.safetensors", metadata={"format": "pt"})
        shutil.copy(toy(model_type) / "config.json", place)
        return place

    return make


def edit_config(place: Path, **values: Any) -> None:
    """Changes values of a checkpoint's config."""
    file = place / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 100 MB of split experts, every element different from its neighbours: writing it takes a while."""
    place = tmp_path_factory.mktemp("large") / "checkpoint"
    place.mkdir()
    hidden, width, experts, layers = 512, 256, 16, 4
    config = {
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": hidden, "vocab_size": 64,
        "moe_intermediate_size": width, "num_experts": experts, "num_hidden_layers": layers, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2,
    }  # fmt: skip
    (place / "config.json").write_text(json.dumps(config))
    counter = np.arange(hidden * width, dtype=np.float32)
    weight_map: dict[str, str] = {}
    for layer in range(layers):
        tensors = {
            f"model.layers.{layer}.mlp.experts.{e}.{part}_proj.weight": (counter + 1000 * e + layer).reshape(
                (hidden, width) if part == "down" else (width, hidden)
            )
            for e in range(experts)
            for part in ("gate", "up", "down")
        }
        name = f"model-{layer + 1:05}-of-{layers:05}.safetensors"
        save_file(tensors, place / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(tensors, name)
    (place / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return place


def contents(place: Path) -> dict[str, bytes]:
    """Every file of a directory, hidden ones included."""
    return {file.name: file.read_bytes() for file in sorted(place.iterdir())}
