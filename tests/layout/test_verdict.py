"""Verdicts on checkpoints that transformers saved."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from omni_kit.convert import convert
from omni_kit.errors import BadInput
from omni_kit.layout import check_layout
from omni_kit.layout.taxonomy import Converter, Disk, Memory, pair_orientation
from tests.conftest import Checkpoints

Edit = Callable[[dict[str, np.ndarray]], None]


@pytest.fixture
def edited(checkpoint: Checkpoints, tmp_path: Path) -> Callable[[str, Edit], Path]:
    """A checkpoint of one file, changed by a function on its tensors."""

    def make(model_type: str, edit: Edit) -> Path:
        source = checkpoint(model_type)
        tensors: dict[str, np.ndarray] = {}
        for shard in sorted(source.glob("*.safetensors")):
            tensors |= load_file(shard)
        edit(tensors)
        place = tmp_path / "edited"
        place.mkdir()
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, place / "model.safetensors")
        shutil.copy(source / "config.json", place)
        return place

    return make


def stack(tensors: dict[str, np.ndarray], transposed: bool = False, layers: range = range(3)) -> None:
    """The fused form of split experts, as transformers stacks them."""
    for layer in layers:
        box = f"model.layers.{layer}.mlp.experts"
        parts = {
            leaf: np.stack([tensors.pop(f"{box}.{e}.{leaf}.weight") for e in range(6)])
            for leaf in ("gate_proj", "up_proj", "down_proj")
        }
        gate_up = np.concatenate([parts["gate_proj"], parts["up_proj"]], axis=1)
        down = parts["down_proj"]
        tensors[f"{box}.gate_up_proj"] = gate_up.transpose(0, 2, 1) if transposed else gate_up
        tensors[f"{box}.down_proj"] = down.transpose(0, 2, 1) if transposed else down


@pytest.mark.parametrize("model_type", ["qwen3_moe", "olmoe", "mixtral", "qwen2_moe", "deepseek_v3", "glm4_moe"])
def test_split_checkpoints(checkpoint: Checkpoints, model_type: str) -> None:
    verdict = check_layout(str(checkpoint(model_type)))
    assert (verdict.verdict, verdict.converter) == ("convertible", Converter.merge_concat)
    assert {tree.disk for tree in verdict.subtrees} == {Disk.per_expert}
    assert {tree.memory for tree in verdict.subtrees} == {Memory.canonical}
    assert verdict.ok, verdict.findings


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "gemma2"])
def test_dense_checkpoints(checkpoint: Checkpoints, model_type: str) -> None:
    verdict = check_layout(str(checkpoint(model_type)))
    assert (verdict.verdict, verdict.subtrees, verdict.ok) == ("not-moe", (), True)


def test_fused(edited: Callable[[str, Edit], Path]) -> None:
    verdict = check_layout(str(edited("qwen3_moe", stack)))
    assert (verdict.verdict, verdict.converter, verdict.ok) == ("native", Converter.none, True)


def test_fused_transposed_against_the_recipe(edited: Callable[[str, Edit], Path]) -> None:
    """The file decides; that transformers would not transpose it is said beside it."""
    verdict = check_layout(str(edited("qwen3_moe", lambda tensors: stack(tensors, transposed=True))))
    assert verdict.subtrees[0].disk is Disk.fused_transposed
    assert verdict.converter is Converter.transpose
    assert {finding.code for finding in verdict.findings} == {"recipe-disagrees", "shape-mismatch"}
    assert not verdict.ok


def test_mixed(edited: Callable[[str, Edit], Path]) -> None:
    verdict = check_layout(str(edited("qwen3_moe", lambda tensors: stack(tensors, layers=range(1)))))
    assert (verdict.verdict, verdict.converter, verdict.ok) == ("mixed", None, True)
    assert {(tree.disk, tree.layers) for tree in verdict.subtrees} == {(Disk.fused, (0,)), (Disk.per_expert, (1, 2))}


def test_biases_and_interleaving_are_said(checkpoint: Checkpoints) -> None:
    """That gate and up alternate is read from the module: its forward takes every second column."""
    verdict = check_layout(str(checkpoint("gpt_oss")))
    tree = verdict.subtrees[0]
    assert tree.disk is Disk.fused_transposed_interleaved
    assert tree.memory is Memory.transposed_interleaved
    assert verdict.converter is Converter.transpose_deinterleave
    assert [(f.code, f.severity) for f in verdict.findings] == [("expert-biases", "warning")]
    assert "shapes do not show it" in tree.evidence[1]


def test_a_missing_expert_is_named(edited: Callable[[str, Edit], Path]) -> None:
    lost = "model.layers.1.mlp.experts.4.up_proj.weight"

    def drop(tensors: dict[str, np.ndarray]) -> None:
        del tensors[lost]

    verdict = check_layout(str(edited("olmoe", drop)))
    assert any(f.code == "incomplete-experts" and lost in f.message for f in verdict.findings)
    assert not verdict.ok


def test_the_last_expert_missing_everywhere_is_seen(edited: Callable[[str, Edit], Path]) -> None:
    """Without the config it would look like five experts."""

    def drop(tensors: dict[str, np.ndarray]) -> None:
        for name in [name for name in tensors if ".experts.5." in name]:
            del tensors[name]

    verdict = check_layout(str(edited("olmoe", drop)))
    assert any(f.code == "incomplete-experts" for f in verdict.findings)


def test_missing_and_unmapped_keys(edited: Callable[[str, Edit], Path]) -> None:
    def rename(tensors: dict[str, np.ndarray]) -> None:
        tensors["model.nrom.weight"] = tensors.pop("model.norm.weight")

    verdict = check_layout(str(edited("olmoe", rename)))
    assert verdict.accounting is not None
    assert verdict.accounting.unmapped == ("model.nrom.weight",)
    assert verdict.accounting.missing == ("model.norm.weight",)
    assert {finding.code for finding in verdict.findings} == {"unmapped-keys", "missing-parameters"}


def test_tied_head_is_not_missing(checkpoint: Checkpoints) -> None:
    verdict = check_layout(str(checkpoint("gemma2")))
    assert verdict.accounting is not None
    assert ("lm_head.weight",) not in verdict.accounting.feeds.values()
    assert verdict.ok


def add_layer(tensors: dict[str, np.ndarray], *extra: str) -> None:
    """A layer beyond the last, like it, with parts of its own."""
    for name in [name for name in tensors if name.startswith("model.layers.2.")]:
        tensors[name.replace("layers.2", "layers.3")] = tensors[name]
    tensors |= {f"model.layers.3.{leaf}.weight": np.ones((64,), np.float32) for leaf in extra}


def say(place: Path, **values: Any) -> str:
    """Changes what config.json says."""
    file = place / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return str(place)


@pytest.mark.parametrize(("said", "own"), [({"num_nextn_predict_layers": 1}, ()), ({}, ("enorm", "hnorm"))])
def test_mtp_layers_are_a_role_of_their_own(
    edited: Callable[[str, Edit], Path], said: dict[str, int], own: tuple[str, ...]
) -> None:
    """The config says that there are some, or their own parts do; they would lie as those of the main layers do."""
    place = edited("deepseek_v3", lambda tensors: add_layer(tensors, *own))
    verdict = check_layout(say(place, **said))
    assert [(tree.role, tree.layers, tree.memory) for tree in verdict.subtrees] == [
        ("main", (1, 2), Memory.canonical),
        ("mtp", (3,), Memory.canonical),
    ]
    assert verdict.accounting is not None
    assert verdict.accounting.ignored
    assert all("multi-token" in item.reason for item in verdict.accounting.ignored)
    assert verdict.ok, verdict.findings


@pytest.mark.parametrize("model_type", ["qwen3_moe", "deepseek_v3", "llama"])
def test_a_layer_too_many_is_no_mtp_layer(edited: Callable[[str, Edit], Path], model_type: str) -> None:
    place = edited(model_type, add_layer)
    config = json.loads((place / "config.json").read_text(encoding="utf-8"))
    verdict = check_layout(say(place, **{key: 0 for key in config if re.search("mtp|nextn", key)}))  # no such layer
    assert next(f for f in verdict.findings if f.code == "extra-layers").message.startswith(
        "model.layers.3 of the file"
    )
    assert "mtp" not in {tree.role for tree in verdict.subtrees}
    assert not verdict.ok


def test_more_mtp_layers_than_the_config_says(edited: Callable[[str, Edit], Path]) -> None:
    def add(tensors: dict[str, np.ndarray]) -> None:
        add_layer(tensors)
        tensors |= {n.replace("layers.3", "layers.4"): t for n, t in tensors.items() if n.startswith("model.layers.3.")}

    verdict = check_layout(say(edited("deepseek_v3", add), num_nextn_predict_layers=1))
    assert verdict.accounting is not None
    assert verdict.accounting.extra == ("model.layers.4",)


def test_index_alone(checkpoint: Checkpoints, tmp_path: Path) -> None:
    for name in ("model.safetensors.index.json", "config.json"):
        shutil.copy(checkpoint("olmoe") / name, tmp_path)
    verdict = check_layout(str(tmp_path / "model.safetensors.index.json"))
    assert (verdict.verdict, verdict.ok) == ("convertible", True)


def test_fused_index_alone_is_ambiguous_unless_assumed(edited: Callable[[str, Edit], Path], tmp_path: Path) -> None:
    place = edited("qwen3_moe", stack)
    index = {"weight_map": dict.fromkeys(load_file(place / "model.safetensors"), "model-00001-of-00001.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    shutil.copy(place / "config.json", tmp_path)
    source = str(tmp_path / "model.safetensors.index.json")
    open_verdict = check_layout(source)
    assert (open_verdict.verdict, open_verdict.ok) == ("ambiguous", False)
    assumed = check_layout(source, assume="fused")
    assert (assumed.verdict, assumed.ok) == ("native", True)
    with pytest.raises(BadInput, match="unknown layout 'fussed'"):
        check_layout(source, assume="fussed")


@pytest.mark.parametrize(
    ("model_type", "unknown"),
    [
        ("gpt_oss", "whether gate and up are interleaved, or in which form the biases are stored"),
        ("llama4_text", "interleaved"),
    ],
)
def test_without_a_config_it_says_what_it_cannot_know(
    edited: Callable[[str, Edit], Path], tmp_path: Path, model_type: str, unknown: str
) -> None:
    place = edited(model_type, lambda tensors: None)
    (place / "config.json").unlink()
    verdict = check_layout(str(place))
    assert (verdict.verdict, verdict.converter, verdict.ok) == ("ambiguous", Converter.unsupported, False)
    (finding,) = verdict.findings
    assert finding.code == "no-config"
    assert unknown in finding.message
    with pytest.raises(BadInput, match="whether gate and up are interleaved"):
        convert(str(place), tmp_path / "out", to="canonical")


def test_without_a_config_split_experts_are_told_by_their_names(edited: Callable[[str, Edit], Path]) -> None:
    place = edited("olmoe", lambda tensors: None)
    (place / "config.json").unlink()
    verdict = check_layout(str(place))
    assert verdict.accounting is None
    assert (verdict.verdict, verdict.converter, verdict.ok) == ("convertible", Converter.merge_concat, False)
    assert [finding.code for finding in verdict.findings] == ["no-config"]


@pytest.mark.parametrize("hidden", range(2, 20, 2))
@pytest.mark.parametrize("width", range(1, 12))
def test_the_pair_is_never_ambiguous(hidden: int, width: int) -> None:
    """Also where one tensor alone is: H == 2I, H == I."""
    canonical = (4, 2 * width, hidden), (4, hidden, width)
    transposed: Any = tuple((e, b, a) for e, a, b in canonical)
    assert pair_orientation(*canonical) is Memory.canonical
    assert pair_orientation(*transposed) is Memory.transposed


def test_other_pairs_are_none() -> None:
    assert pair_orientation((4, 8, 6), (4, 5, 4)) is Memory.none
    assert pair_orientation((4, 8, 6), (3, 6, 4)) is Memory.none
    assert pair_orientation((8, 6), (6, 4)) is Memory.none
