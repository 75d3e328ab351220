"""Safetensors under other names: every byte of a tensor stays, and nothing is written where something is in doubt."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from omni_kit.convert import apply_renames
from omni_kit.convert.names import Names
from omni_kit.errors import BadInput
from tests.convert.conftest import Tensors, assert_equal, load

GATE, ROUTER = "model.layers.*.mlp.gate.weight", "model.layers.*.mlp.router.weight"
MAPS = {"small": {GATE: ROUTER}}


def tensors() -> Tensors:
    names = [GATE.replace("*", number) for number in ("0", "11")]
    names += ["model.embed.weight", "model.layers.0.mlp.gate.weight_scale", "other.model.layers.0.mlp.gate.weight"]
    return {name: np.arange(12, dtype=np.float32).reshape(3, 4) + 100 * i for i, name in enumerate(names)}


def wanted() -> Tensors:
    renamed = {GATE.replace("*", number): ROUTER.replace("*", number) for number in ("0", "11")}
    return {renamed.get(name, name): tensor for name, tensor in tensors().items()}


@pytest.fixture
def single(tmp_path: Path) -> Path:
    """One file, with a config, and a pickle beside it."""
    place = tmp_path / "single"
    place.mkdir()
    save_file(tensors(), place / "adapter_model.safetensors", {"format": "pt"})
    (place / "config.json").write_text("{}")
    (place / "optimizer.bin").write_bytes(b"pickle")
    return place


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Two files and their index."""
    place = tmp_path / "sharded"
    place.mkdir()
    parts = list(tensors().items())
    shards = {"model-00001-of-00002.safetensors": parts[:3], "model-00002-of-00002.safetensors": parts[3:]}
    for name, part in shards.items():
        save_file(dict(part), place / name)
    weight_map = {key: name for name, part in shards.items() for key, _ in part}
    (place / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return place


def test_one_file(single: Path, tmp_path: Path) -> None:
    done = apply_renames(str(single), MAPS, tmp_path / "out")
    assert (done.form, done.model_type, done.written, done.missing) == ("safetensors", "small", True, ())
    assert (done.keys.read, done.keys.renamed, done.keys.copied) == (5, 2, 3)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"adapter_model.safetensors", "config.json"}
    assert_equal(load(tmp_path / "out"), wanted())
    with safe_open(tmp_path / "out" / "adapter_model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
    assert done.notes == ("left behind: optimizer.bin",)
    assert_equal(load(single), tensors())


def test_shards_and_their_index(sharded: Path, tmp_path: Path) -> None:
    for number, source in enumerate((sharded, sharded / "model-00001-of-00002.safetensors")):
        out = tmp_path / f"out-{number}"
        apply_renames(str(source), MAPS, out)
        assert_equal(load(out), wanted())
        weight_map = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
        assert weight_map.keys() == wanted().keys()
        assert {file.name for file in out.glob("*.safetensors")} == {
            file.name for file in sharded.glob("*.safetensors")
        }


def test_only_counted(single: Path, tmp_path: Path) -> None:
    done = apply_renames(str(single), MAPS, tmp_path / "out", dry_run=True)
    assert (done.written, done.keys.renamed) == (False, 2)
    assert not (tmp_path / "out").exists()


def test_names_that_are_not_in_it_are_named(single: Path, tmp_path: Path) -> None:
    maps = {"small": {**MAPS["small"], "model.norm.*.weight": "model.norms.*.weight"}}
    assert apply_renames(str(single), maps, tmp_path / "out").missing == ("model.norm.*.weight",)


def test_two_names_change_places(single: Path, tmp_path: Path) -> None:
    one, other = "model.layers.0.mlp.gate.weight", "model.embed.weight"
    apply_renames(str(single), {"small": {one: other, other: one}}, tmp_path / "out")
    found, before = load(tmp_path / "out"), tensors()
    assert (found[one].tolist(), found[other].tolist()) == (before[other].tolist(), before[one].tolist())


def test_the_model_is_the_one_whose_names_it_has(single: Path, tmp_path: Path) -> None:
    maps = {"another": {"visual.*.weight": "vision.*.weight"}, **MAPS}
    assert apply_renames(str(single), maps, tmp_path / "out").model_type == "small"
    both = {"another": {GATE: "model.layers.*.mlp.chooser.weight"}, **MAPS}
    with pytest.raises(BadInput, match="renamed keys of several models: another, small"):
        apply_renames(str(single), both, tmp_path / "out-2")


@pytest.mark.parametrize(
    ("maps", "reason"),
    [
        ({}, "no parameter was renamed"),
        ({"small": {"model.norm.weight": "model.last.weight"}}, "none of the names that changed"),
        ({"small": {GATE: "model.layers.*.mlp.*.weight"}}, "more index groups on one side"),
        (
            {"small": {"model.layers.0.mlp.gate.weight": "model.embed.weight"}},
            "would both be renamed to model.embed.weight",
        ),
    ],
)
def test_what_is_in_doubt_is_not_written(
    maps: dict[str, dict[str, str]], reason: str, single: Path, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=reason):
        apply_renames(str(single), maps, tmp_path / "out")
    assert {file.name for file in tmp_path.iterdir()} == {"single"}


def test_nothing_is_replaced(single: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("mine")
    with pytest.raises(BadInput, match="is there already"):
        apply_renames(str(single), MAPS, out)
    assert [file.name for file in out.iterdir()] == ["mine"]
    (out / "mine").unlink()
    apply_renames(str(single), MAPS, out)
    with pytest.raises(BadInput, match="which is read"):
        apply_renames(str(single), MAPS, single / "out")


def test_no_checkpoint(single: Path, tmp_path: Path) -> None:
    file = single / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    for source, reason in (
        (single, "is truncated"),
        (single / "optimizer.bin", "pickle"),
        (tmp_path / "no", "there is no"),
    ):
        with pytest.raises(BadInput) as caught:
            apply_renames(str(source), MAPS, tmp_path / "out")
        assert reason in f"{caught.value.message} {caught.value.hint}"
    assert {place.name for place in tmp_path.iterdir()} == {"single"}


def test_a_place_where_nothing_can_be_written(single: Path, tmp_path: Path) -> None:
    (tmp_path / "place").write_text("a file")
    with pytest.raises(BadInput, match="cannot write"):
        apply_renames(str(single), MAPS, tmp_path / "place" / "out")
    assert {place.name for place in tmp_path.iterdir()} == {"single", "place"}


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("model.layers.3.mlp.gate.weight", "model.layers.3.mlp.router.weight"),
        ("state.model.layers.3.mlp.gate.weight.exp_avg", "state.model.layers.3.mlp.router.weight.exp_avg"),
        ("state.model.layers.3.mlp.gate.weight.block_0.left", "state.model.layers.3.mlp.router.weight.block_0.left"),
        ("param_groups.model.layers.3.mlp.gate.weight.lr", "param_groups.model.layers.3.mlp.router.weight.lr"),
        ("model.layers.3.mlp.gate.weight.exp_avg", "model.layers.3.mlp.gate.weight.exp_avg"),
        ("model.layers.x.mlp.gate.weight", "model.layers.x.mlp.gate.weight"),
        ("state.step", "state.step"),
    ],
)
def test_parameters_and_states_of_them(name: str, now: str) -> None:
    assert Names(MAPS["small"]).of(name) == now
