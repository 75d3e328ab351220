"""The toy checkpoint: upstream's own layout, sharded, deterministic, and loadable by upstream."""

import json
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from omni_kit.errors import BadInput
from omni_kit.parity import make_toy_checkpoint
from omni_kit.parity.processes.workers import Sides


@pytest.fixture(scope="module")
def olmoe(tmp_path_factory: pytest.TempPathFactory, sides: Sides) -> Path:
    return make_toy_checkpoint("olmoe", tmp_path_factory.mktemp("toy") / "olmoe", sides=sides)


def tensors_of(checkpoint: Path) -> dict[str, object]:
    return {name: value for file in sorted(checkpoint.glob("*.safetensors")) for name, value in load_file(file).items()}


def test_it_is_sharded_and_its_index_names_every_tensor(olmoe: Path) -> None:
    index = json.loads((olmoe / "model.safetensors.index.json").read_text(encoding="utf-8"))
    tensors = tensors_of(olmoe)

    assert len(set(index["weight_map"].values())) >= 3
    assert set(index["weight_map"]) == set(tensors)


def test_experts_lie_one_by_one_as_published_checkpoints_have_them(olmoe: Path) -> None:
    config = json.loads((olmoe / "config.json").read_text(encoding="utf-8"))
    tensors = tensors_of(olmoe)

    last = config["num_experts"] - 1
    gate = tensors[f"model.layers.1.mlp.experts.{last}.gate_proj.weight"]
    assert list(getattr(gate, "shape")) == [config["intermediate_size"], config["hidden_size"]]  # noqa: B009
    assert f"model.layers.0.mlp.experts.{last + 1}.gate_proj.weight" not in tensors
    assert config["architectures"] == ["OlmoeForCausalLM"]


def test_the_same_source_gives_the_same_bytes(olmoe: Path, tmp_path: Path, sides: Sides) -> None:
    again = make_toy_checkpoint(olmoe / "config.json", tmp_path / "again", sides=sides)

    ours = {file.name: file.read_bytes() for file in olmoe.glob("*.safetensors")}
    assert ours == {file.name: file.read_bytes() for file in again.glob("*.safetensors")}


def test_a_toy_config_is_used_as_it_is(olmoe: Path, tmp_path: Path, sides: Sides) -> None:
    values = json.loads((olmoe / "config.json").read_text(encoding="utf-8")) | {"num_experts": 6, "hidden_size": 64}
    (tmp_path / "toy_config.json").write_text(json.dumps(values), encoding="utf-8")

    made = make_toy_checkpoint(tmp_path / "toy_config.json", tmp_path / "made", sides=sides)

    config = json.loads((made / "config.json").read_text(encoding="utf-8"))
    assert (config["num_experts"], config["hidden_size"]) == (6, 64)


HUGE = {
    "too wide": {"hidden_size": 8192, "intermediate_size": 28672},
    "too many layers": {"num_hidden_layers": 10_000_000},
    "too many words": {"vocab_size": 10**12},
    "too many experts": {"num_experts": 10**9},
}


@pytest.mark.parametrize("name", HUGE)
def test_a_toy_config_of_full_size_is_refused_at_once(name: str, olmoe: Path, tmp_path: Path, sides: Sides) -> None:
    values = json.loads((olmoe / "config.json").read_text(encoding="utf-8")) | HUGE[name]
    values.pop("layer_types", None)
    (tmp_path / "toy_config.json").write_text(json.dumps(values), encoding="utf-8")
    started = time.monotonic()
    with pytest.raises(BadInput) as caught:
        make_toy_checkpoint(tmp_path / "toy_config.json", tmp_path / "made", sides=sides)
    assert "more than 100 million parameters" in caught.value.message or "memory" in caught.value.message
    assert "\n" not in caught.value.message
    assert time.monotonic() - started < 60
    assert not (tmp_path / "made").exists()


def test_a_directory_that_holds_something_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep", encoding="utf-8")

    with pytest.raises(BadInput, match="is not empty"):
        make_toy_checkpoint("olmoe", tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("source", ["no_such_model", "vit"])
def test_what_upstream_cannot_build_is_named(source: str, tmp_path: Path, sides: Sides) -> None:
    with pytest.raises(BadInput, match=source):
        make_toy_checkpoint(source, tmp_path / "made", sides=sides)

    assert not (tmp_path / "made").exists()


def test_the_layout_in_memory_has_the_experts_together(tmp_path: Path, sides: Sides) -> None:
    tensors = tensors_of(make_toy_checkpoint("olmoe", tmp_path / "fused", layout="memory", sides=sides))

    assert "model.layers.0.mlp.experts.gate_up_proj" in tensors
    assert not any(".experts.0." in name for name in tensors)
