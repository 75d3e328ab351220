"""One answer to what loading needs, for check-layout, new-model, --emit-converter and VEO207."""

import ast
from pathlib import Path

import pytest

from omni_kit.layout import check_layout
from omni_kit.layout.loading import converts_experts, loading
from omni_kit.layout.taxonomy import Converter
from tests.conftest import Checkpoints, first, run_cli

ANSWERS = {
    "qwen3_moe": Converter.merge_concat, "mixtral": Converter.merge_concat, "gpt_oss": Converter.none,
    "llama4_text": Converter.none, "granitemoe": Converter.none, "llama": Converter.none,
}  # fmt: skip
# Newer releases call the experts of this one as others do, and rename what was published.
RENAMED = "granitemoe"


@pytest.mark.parametrize("model_type", first(1, ANSWERS))
def test_every_command_says_the_same(checkpoint: Checkpoints, tmp_path: Path, model_type: str) -> None:
    from transformers.conversion_mapping import get_checkpoint_conversion_mapping

    place = str(checkpoint(model_type))
    renamed = model_type == RENAMED and get_checkpoint_conversion_mapping(model_type)
    answer = Converter.rename if renamed else ANSWERS[model_type]
    needed = answer is not Converter.none
    code, seen = run_cli("check-layout", place, "--emit-converter", str(tmp_path / "mine.py"))
    assert (code, seen["loading"]["converter"]) == (0, answer)
    assert (tmp_path / "mine.py").exists() is needed
    if not needed:
        assert seen["loading"]["reason"] in seen["notes"][0]
    code, made = run_cli("new-model", "made", "--from", place, "--target", "veomni", "--into", str(tmp_path))
    assert code == 0, made
    assert any(file["path"].endswith("checkpoint_tensor_converter.py") for file in made["files"]) is needed
    for decision in made["decisions"]:
        if decision["what"] == "checkpoint converter":
            assert seen["loading"]["reason"] in decision["reason"]
    model = check_layout(place).model
    assert model is not None
    assert converts_experts(model) is needed


@pytest.mark.parametrize("model_type", ["gpt_oss", "olmoe", "qwen3_vl_moe", "aria"])
def test_with_a_checkpoint_and_without(model_type: str) -> None:
    """What transformers declares for a type is judged as a checkpoint of it is."""
    needed = {"gpt_oss": "none", "olmoe": "merge-concat", "qwen3_vl_moe": "transpose", "aria": "none"}
    assert loading(check_layout(model_type)).converter == needed[model_type]


def test_the_emitted_converter_is_that_of_new_model(checkpoint: Checkpoints, tmp_path: Path) -> None:
    place = str(checkpoint("olmoe"))
    run_cli("check-layout", place, "--emit-converter", str(tmp_path / "made.py"))
    run_cli("new-model", "made", "--from", place, "--into", str(tmp_path))
    emitted, scaffolded = (
        ast.parse((tmp_path / name).read_text()) for name in ("made.py", "made/checkpoint_tensor_converter.py")
    )
    assert ast.dump(emitted) == ast.dump(scaffolded)
