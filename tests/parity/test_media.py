"""Models with media: their own pass every scene, and faults show in the scenes that they belong to."""

import json
from pathlib import Path

import pytest
from transformers import AutoConfig

from omni_kit.parity import run_parity
from omni_kit.parity.processes import training
from omni_kit.parity.processes.workers import Sides
from omni_kit.toys.configs.language import toy_config

from .conftest import Plant

QWEN3_VL = "generated/patched_modeling_qwen3_vl_gpu.py"
UNROLLED = "            for _ in range(t):\n                cu.append(cu[-1] + hw)\n        # SP-pad tail"
TOGETHER = "            cu.append(cu[-1] + t * hw)\n            max_hw = max(max_hw, t * hw)\n        # SP-pad tail"
OFFSET = "deepstack_offset = image_mask[:, :rank_start].sum().item()"
BIAS = (
    "self.o_proj = nn.Linear(\n            config.num_attention_heads * self.head_dim, config.hidden_size, "
    "bias=config.attention_bias\n        )"
)
DUMMY = (
    "for embed in deepstack_video_embeds\n                ]\n            # --- Patch.1 ---\n\n        elif "
    "get_parallel_state().fsdp_enabled:"
)
# Of VeOmni 0.1.12: deepstack is written into the layer's own answer, which is recorded; router logits are not returned;
# a convolution is always followed by silu; a converter tells by shape whether to transpose, also of a square.
OWN_FAULTS = {
    "qwen3_omni_moe": [
        "text alone, output_router_logits True", "an image, output_hidden_states True",
        "an image, output_router_logits True",
    ],
    "qwen3_5": ["text_config: hidden_act=gelu", "text_config: hidden_act=gelu, linear_value_head_dim=19"],
    "qwen3_vl_moe": ["text_config: moe_intermediate_size=48"],
}  # fmt: skip


def for_two_processes(model: Path, model_type: str) -> Path:
    """Four cannot share two heads: this spares them where two processes show the fault."""
    toy = toy_config(AutoConfig.for_model(model_type).to_dict())
    toy["text_config"] |= {"num_attention_heads": 2, "num_key_value_heads": 2}
    toy["vision_config"] |= {"num_heads": 2}
    (model / "toy_config.json").write_text(json.dumps(toy), encoding="utf-8")
    return model


@pytest.mark.sweep
@pytest.mark.parametrize("model", ["qwen3_vl", "qwen3_vl_moe", "qwen2_5_omni", "qwen3_omni_moe", "qwen3_5"])
def test_a_model_with_media_passes_in_every_form_that_it_is_fed_in(
    model: str, veomni_models: Path, sides: Sides
) -> None:
    report = run_parity(veomni_models / model, ["scenarios", "sp", "fsdp"], sides=sides)
    assert [report.level(name).status for name in ("sp", "fsdp")] == ["pass", "pass"]
    results = {one.name: one for one in report.level("scenarios").scenarios}
    assert [name for name, one in results.items() if one.status == "fail"] == OWN_FAULTS.get(model, [])
    assert results["samples of different media, packed"].status == "pass"
    left_out = [one for one in results.values() if one.status == "refused"]
    wanting = {one.name for one in left_out if "needs prepared inputs" in one.reason}
    magnified = {one.name for one in left_out if "upstream itself magnifies rounding" in one.reason}
    by_upstream = {one.name for one in left_out if one.reason.startswith("upstream refuses it")} - wanting
    assert {one.name for one in left_out} <= wanting | magnified | by_upstream
    assert all("12" in name for name in magnified), "only a deep model may magnify so much"
    assert not any(name.startswith(("an image", "two images", "samples")) for name in wanting | by_upstream)
    if "omni" in model:
        assert results["a sound, unprepared"].status == "pass"
        assert results["a film, unprepared"].reason.startswith(
            "the integration was not called: it needs prepared inputs"
        )


@pytest.mark.sweep
def test_faults_show_in_the_scenes_and_forms_that_they_belong_to(plant: Plant, sides: Sides) -> None:
    """Frames that the collator takes together, positions made beforehand that know no films, and a switch of text."""
    edits = [
        (UNROLLED, TOGETHER),
        ("fake_config.video_token_id = VIDEO_INPUT_INDEX", "pass"),
        (BIAS, BIAS.replace("config.attention_bias", "False")),
    ]
    model = plant("media_with_faults", {QWEN3_VL: edits}, "qwen3_vl")
    results = run_parity(model, ["scenarios"], sides=sides).level("scenarios").scenarios
    found = {one.name: one.status for one in results}
    assert {found[name] for name in ("a film, alone", "a film, packed", "two films, packed")} == {"fail"}
    sound = ("a film, unprepared", "images and films, unprepared", "an image, alone", "two images, packed",
             "an image at the end, packed", "text alone, packed")  # fmt: skip
    text = ("a single label", "padding left", "inputs_embeds", "gradient checkpointing", "300 tokens")
    assert {found[name] for name in (*sound, *text)} == {"pass"}
    assert [one.name for one in results if "o_proj.bias" in one.reason] == ["text_config: attention_bias=True"]
    assert not any("sound" in name for name in found)


@pytest.mark.sweep
def test_features_of_another_process_s_images(plant: Plant, sides: Sides) -> None:
    edits = {QWEN3_VL: [(OFFSET, f"deepstack_offset = max(0, {OFFSET.partition(' = ')[2]} - 1)")]}
    model = for_two_processes(plant("features_of_another", edits, "qwen3_vl"), "qwen3_vl")
    level = run_parity(model, ["sp"], sides=sides).level("sp")
    assert level.status == "fail"
    assert "(images across the cuts): 2 of 2 figures differ" in level.reason
    assert not any(f"({scene})" in level.reason for scene in ("text alone", "a film next to other samples"))


@pytest.mark.sweep
def test_a_process_without_films_that_calls_no_tower_for_them(
    plant: Plant, sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one waits for it, and it is said where."""
    monkeypatch.setattr(training, "_PATIENCE", 5.0)
    monkeypatch.setattr(training, "_TIMES", 1.0)
    edits = {QWEN3_VL: [(DUMMY, DUMMY.replace("get_parallel_state().fsdp_enabled", "False"))]}
    level = run_parity(plant("no_dummy", edits, "qwen3_vl"), ["fsdp"], sides=sides).level("fsdp")
    assert level.status == "fail", level.reason
    assert "the processes are not in the same collective" in level.reason
    assert "patched_modeling_qwen3_vl_gpu.py" in level.reason
    assert "all_gather" in level.reason
