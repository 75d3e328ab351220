"""Where upstream's models merge media into text, and why some are refused."""

import ast
from pathlib import Path

import pytest

from omni_kit.errors import Refusal
from omni_kit.scaffold import new_model
from omni_kit.targets.veomni.media.context import media_context
from omni_kit.targets.veomni.media.dummies import bins_first, dummies_of, required_inputs
from omni_kit.targets.veomni.media.flow import statements_with
from omni_kit.targets.veomni.media.merging import (
    Features,
    find_merging,
    mask_dropped,
    refuse_attention_of_its_own,
    refuse_encoder_decoder,
    text_part,
)
from omni_kit.targets.veomni.media.patches import media_patches, merging_edits
from omni_kit.upstream.subject import open_source
from omni_kit.upstream.transformers.models import UpstreamModel
from tests.conftest import first


def model_of(name: str) -> UpstreamModel:
    model = open_source(name).model
    assert isinstance(model, UpstreamModel)
    return model


def test_features_are_followed_to_where_they_are_placed() -> None:
    merging = find_merging(model_of("llava"))
    (image,) = merging.features

    assert merging.owner == "LlavaModel"
    assert (image.kind, image.name, image.inputs[0]) == ("image", "image_features", "pixel_values")
    assert image.placed is not None
    assert not merging.positions


def test_features_of_further_layers_belong_to_the_same_places() -> None:
    merging = find_merging(model_of("qwen3_vl"))

    assert [one.kind for one in merging.features] == ["image", "video"]
    assert [name for one in merging.features for name, _ in one.layers] == [
        "deepstack_image_embeds",
        "deepstack_video_embeds",
    ]
    assert merging.positions


@pytest.mark.parametrize(("name", "first"), [("gemma4", "torch_compilable_check("), ("llava", "special_image_mask =")])
def test_features_are_cut_before_they_are_counted(name: str, first: str) -> None:
    image, *_ = find_merging(model_of(name)).features

    assert image.placed is not None
    assert ast.unparse(image.placed).startswith(first)


def test_a_forward_that_reads_the_pixels_of_one_row_is_refused_with_the_line() -> None:
    with pytest.raises(Refusal, match=r"reads `pixel_values\[:1\]` \(.*modeling_minicpmv4_6.py:\d+\)"):
        find_merging(model_of("minicpmv4_6"))


@pytest.mark.parametrize(("default", "required"), [("", {"pixel_values", "target_sizes"}), ("=None", {"pixel_values"})])
def test_a_dummy_has_all_that_the_tower_requires(default: str, required: set[str]) -> None:
    (getter,) = ast.parse(f"def get_image_features(self, pixel_values, target_sizes{default}): pass").body
    call = ast.parse("self.get_image_features(pixel_values, target_sizes)", mode="eval").body
    assert isinstance(getter, ast.FunctionDef)
    assert isinstance(call, ast.Call)
    image = Features("image", call, ("pixel_values", "target_sizes"), "found", None)
    assert required_inputs(getter, image) == required


@pytest.mark.parametrize(("name", "blocks"), [("smolvlm", True), ("idefics3", False), ("llava", False)])
def test_features_that_are_placed_by_blocks_become_blocks_of_one(name: str, blocks: bool) -> None:
    model = model_of(name)
    merging = find_merging(model)
    (image,) = merging.features

    assert image.placed is not None
    assert image.blocks == blocks
    assert any("a block of its own" in edit.text for edit in merging_edits(model, merging)) == blocks
    assert [one.kind for one in dummies_of(model, merging)] == ["image"]


@pytest.mark.parametrize(("name", "shared"), [("glm4v", True), ("qwen3_vl", False), ("llava", False)])
def test_a_dummy_has_no_placeholder_of_another_kind(name: str, shared: bool) -> None:
    model = model_of(name)
    merging = find_merging(model)

    text = "\n".join(edit.text for edit in merging_edits(model, merging))

    assert merging.shared == shared
    assert ('media.ids("video", input_ids)' in text) == shared


KEPT = """
class TheModel:
    def forward(self, input_ids, pixel_values=None, pixel_values_videos=None, kept=None, **kwargs):
        kept = kept if kept is not None else {}
        if kept.get("image") is None and pixel_values is not None:
            kept["image"] = self.get_image_features(pixel_values, **kwargs)
        if kept.get("video") is None and pixel_values_videos is not None:
            kept["video"] = self.get_video_features(pixel_values_videos, **kwargs)
        if kept.get("image") is not None:
            pictures = torch.cat(kept["image"].pooler_output).to(embeds.dtype)
            embeds = embeds.masked_scatter(mask, pictures)
        if kept.get("video") is not None:
            films = kept.get("video").pooler_output
            mask = films.shape
            embeds = embeds.masked_scatter(mask, films)
        return embeds
"""


def test_what_is_kept_in_a_dict_is_followed_to_where_each_is_placed() -> None:
    (forward,) = (one for one in ast.walk(ast.parse(KEPT)) if isinstance(one, ast.FunctionDef))
    calls = [one for one in ast.walk(forward) if isinstance(one, ast.Call) and "_features" in ast.unparse(one.func)]

    image, video = (dict(statements_with(forward.body, call)) for call in calls)

    placed = {ast.unparse(one).rpartition(", ")[2]: one for one in image if "masked_scatter" in ast.unparse(one)}
    assert {"pictures", "kept['image']"} <= image[placed["pictures)"]]
    assert "films" not in image[placed["films)"]]
    assert {"films", "kept['video']"} <= video[placed["films)"]]
    assert not {"pictures", "mask"} & video[placed["films)"]]


@pytest.mark.parametrize("branch", ["x = None", "x = f(x)", "return"])
def test_a_branch_that_may_be_passed_over_takes_nothing_away(branch: str) -> None:
    tree = ast.parse(f"x = made()\nif asked:\n    {branch}\ny = x\nx = 0\nlast(y)")
    call = next(one for one in ast.walk(tree) if isinstance(one, ast.Call))

    found = list(statements_with(tree.body, call))

    assert [held for statement, held in found if ast.unparse(statement) == "last(y)"] == [frozenset({"y"})]


@pytest.mark.parametrize(
    ("read", "mask"), [("pixel_values[pixel_attention_mask]", "1, 1, dtype"), ("pixel_values", "1, 1, side_of")]
)
def test_a_dummy_of_a_mask_has_rows_and_columns_unless_it_selects_whole_pictures(read: str, mask: str) -> None:
    model = model_of("idefics3")
    merging = find_merging(model)
    model.source.tree.body.append(ast.Expr(ast.parse(read, mode="eval").body))
    try:
        (dummy,) = dummies_of(model, merging)
    finally:
        del model.source.tree.body[-1]

    assert dummy.inputs["pixel_attention_mask"].startswith(f"torch.ones({mask}")


def test_a_dummy_of_merged_patches_has_their_rows_and_columns() -> None:
    model = model_of("qwen2_vl")
    merging = find_merging(model)
    read = "pixel_values.reshape(-1, merge, patch, merge, patch, pixel_values.shape[-1])"
    before = [one.inputs["pixel_values"] for one in dummies_of(model, merging) if one.kind == "image"]
    vars(model.source)["code"] = f"{model.source.code}\n{read}"  # the source is frozen, and its text cached
    after = [one.inputs["pixel_values"] for one in dummies_of(model, merging) if one.kind == "image"]
    vars(model.source).pop("code")

    assert [one.count("patch_size)") for one in (*before, *after)] == [1, 2]


def test_a_head_may_merge_itself() -> None:
    assert find_merging(model_of("llama4")).owner == "Llama4ForConditionalGeneration"


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("qwen2_5_vl", ["pixel_values", "image_grid_thw"]),
        ("aria", ["pixel_values", "pixel_mask"]),
        ("mistral3", ["pixel_values", "image_sizes"]),
        ("llava", ["pixel_values"]),
        ("lfm2_vl", ["pixel_values", "spatial_shapes", "pixel_attention_mask"]),
        ("video_llama_3", ["pixel_values", "image_grid_thw", "image_merge_sizes"]),
        ("gemma4", ["pixel_values", "image_position_ids"]),
        ("fuyu", ["image_patches"]),
        ("chameleon", ["pixel_values"]),
    ],
)
def test_a_dummy_has_every_input_of_its_tower(name: str, inputs: list[str]) -> None:
    model = model_of(name)

    first, *_ = dummies_of(model, find_merging(model))

    assert list(first.inputs) == inputs


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("gemma4", ["input_features", "input_features_mask"]),
        ("qwen2_5_omni_thinker", ["input_features", "feature_attention_mask"]),
        ("gemma3n", ["input_features", "input_features_mask"]),
        ("granite_speech", ["input_features"]),
        ("llava", None),
    ],
)
def test_a_dummy_sound_is_made_where_its_size_is_known(name: str, inputs: list[str] | None) -> None:
    model = model_of(name)

    found = {one.kind: list(one.inputs) for one in dummies_of(model, find_merging(model))}

    assert found.get("audio") == inputs


@pytest.mark.parametrize(("layer", "first"), [("Conv1d(config.num_mel_bins, 8, 3)", True), ("Linear(8, 8)", False)])
def test_bins_come_before_frames_where_a_tower_begins_with_a_convolution(layer: str, first: bool) -> None:
    assert bins_first(ast.parse(f"self.one = nn.{layer}"), "num_mel_bins") == first


@pytest.mark.parametrize(
    ("name", "padded"), [("aria", True), ("gemma4", True), ("llava", False), ("qwen2_5_omni_thinker", False)]
)
def test_towers_with_masks_of_padding_use_attention_that_gets_them(name: str, padded: bool) -> None:
    model = model_of(name)

    assert media_context(model, find_merging(model)).padded == padded


def test_what_does_not_call_for_features_is_refused_with_the_line() -> None:
    with pytest.raises(Refusal, match=r"MllamaModel.forward .* `self.vision_model` \(.*modeling_mllama.py:\d+\)"):
        find_merging(model_of("mllama"))


def test_an_encoder_decoder_is_refused_with_the_line() -> None:
    for name in ("blip_2", "instructblip"):
        said = rf"by `self.config.use_decoder_only_language_model` \(.*modeling_{name}.py:\d+\)"
        with pytest.raises(Refusal, match=said):
            refuse_encoder_decoder(model_of(name.replace("blip_2", "blip-2")))
    with pytest.raises(Refusal, match=r"takes decoder_input_ids|is an encoder-decoder"):
        refuse_encoder_decoder(model_of("udop"))
    refuse_encoder_decoder(model_of("llava"))


def test_a_tower_with_a_table_of_attention_classes_is_refused_with_the_line() -> None:
    with pytest.raises(Refusal, match=r"SAM_VISION_ATTENTION_CLASSES` \(.*modeling_sam.py:\d+\)"):
        refuse_attention_of_its_own(model_of("deepseek_vl_hybrid"))
    for name in ("deepseek_vl", "aria", "gemma4"):
        refuse_attention_of_its_own(model_of(name))


def test_the_text_model_of_another_file_is_found() -> None:
    text = text_part(model_of("llava"))

    assert text is not None
    assert text.class_name == "LlamaForCausalLM"
    assert text_part(model_of("qwen2_5_vl")) is None


@pytest.mark.parametrize(
    ("name", "towers"),
    [
        ("llava", ["vision_tower", "multi_modal_projector"]),
        ("qwen3_vl", ["visual"]),  # get_video_features calls get_image_features
        (
            "chameleon",
            ["vqmodel", "vocabulary_mapping"],
        ),  # get_image_features calls get_image_tokens, and that a method of the tower
        ("qwen2_5_omni_thinker", ["audio_tower", "visual"]),
    ],
)
def test_towers_are_modules_and_no_methods(name: str, towers: list[str]) -> None:
    model = model_of(name)

    assert media_context(model, find_merging(model)).towers == towers


@pytest.mark.parametrize(
    ("name", "dropped"), [("mistral3", True), ("lighton_ocr", True), ("llava", False), ("qwen2_vl", False)]
)
def test_a_tower_that_makes_no_mask_for_flash_attention_is_found(name: str, dropped: bool) -> None:
    model = model_of(name)
    assert (mask_dropped(model) is not None) is dropped
    assert media_context(model, find_merging(model)).padded is dropped


@pytest.mark.parametrize("name", first(1, ["llama4", "granite_speech"]))
def test_a_head_that_merges_and_runs_rows_of_their_own_is_patched_once(name: str, tmp_path: Path) -> None:
    new_model("one", name, target="veomni", into=tmp_path)
    (config,) = (tmp_path / "one").glob("*_patch_gen_config.py")
    text = config.read_text(encoding="utf-8")

    assert text.count(f'"{model_of(name).class_name}.forward"') == 1
    assert text.index("return rows_of_their_own(") < text.index("= from_pipeline(")


@pytest.mark.parametrize(("name", "tied"), [("granite_speech", False), ("llava", True)])
def test_embeddings_are_tied_where_the_whole_config_says_whether(name: str, tied: bool) -> None:
    model = model_of(name)
    patches = media_patches(model, find_merging(model), merged=False)
    assert any(one.target.endswith(".__init__") for one in patches) == tied
