"""A model without weights: the layout that its checkpoint will have, against what transformers saves."""

import json
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.layout import check_layout, read_checkpoint
from omni_kit.layout.expected import expected_checkpoint
from omni_kit.layout.taxonomy import Converter, Disk
from tests.conftest import Checkpoints, run_cli

EXACT = [
    "qwen3_moe", "mixtral", "gpt_oss", "llama4_text", "deepseek_v3", "olmoe", "granitemoe", "llama",
    "gemma2", "phimoe", "minimax_m2", "ernie4_5_moe", "jetmoe",
]  # fmt: skip


@pytest.mark.parametrize("model_type", EXACT)
def test_names_and_shapes_are_those_that_are_saved(checkpoint: Checkpoints, model_type: str) -> None:
    saved = read_checkpoint(checkpoint(model_type))
    model = check_layout(str(checkpoint(model_type))).model
    assert model is not None
    expected = expected_checkpoint(model)
    assert {key: expected.shape(key) for key in expected.tensors} == {key: saved.shape(key) for key in saved.tensors}


def test_of_a_config(checkpoint: Checkpoints) -> None:
    seen, told = (check_layout(str(checkpoint("mixtral") / name)) for name in ("", "config.json"))
    assert told.ok
    assert [(t.prefix, t.layers, t.disk, t.memory, t.converter, t.num_experts, t.names) for t in told.subtrees] == [
        (t.prefix, t.layers, t.disk, t.memory, t.converter, t.num_experts, t.names) for t in seen.subtrees
    ]
    assert [finding.code for finding in told.findings] == ["no-checkpoint"]


def test_of_a_model_type() -> None:
    code, data = run_cli("check-layout", "olmoe")
    assert (code, data["verdict"], data["converter"]) == (0, "convertible", "merge-concat")
    assert data["subtrees"][0]["num_experts"] == 64
    assert data["keys"]["proof"] == ""
    assert "no checkpoint given" in data["findings"][0]["message"]


def test_what_the_recipe_transposes_is_published_transposed() -> None:
    verdict = check_layout("qwen3_vl_moe")
    assert (verdict.subtrees[0].disk, verdict.converter) == (Disk.fused_transposed, Converter.transpose)


def test_no_layout_can_be_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 4}))
    with pytest.raises(BadInput, match="contains no safetensors files"):
        check_layout(str(tmp_path / "config.json"))
    with pytest.raises(BadInput, match="contains no safetensors files"):
        check_layout("olmoe", against_model=True)


@pytest.mark.parametrize(("weights", "code"), [("pytorch_model.bin", 2), ("README.md", 0)])
def test_a_directory_with_pickles_only_is_refused_and_a_config_alone_is_not(
    weights: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "olmoe"}', encoding="utf-8")
    (tmp_path / weights).write_bytes(b"")
    found, answer = run_cli("check-layout", str(tmp_path))
    assert found == code
    assert ("only pickled weights (pytorch_model.bin)" in answer.get("error", "")) == bool(code)
