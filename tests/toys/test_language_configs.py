"""Toy configs: legal for real models, small, no two dimensions alike, and true to the decisions of the original."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.toys.configs.language import toy_config
from tests.conftest import sampled

# Every decoder of transformers whose default config is legal was tried; these stand for the ways they differ.
DECODERS = """
apertus arcee bamba bitnet bloom cohere cohere2 deepseek_v2 deepseek_v3 deepseek_v4 diffllama doge dots1 ernie4_5
ernie4_5_moe exaone4 falcon falcon_h1 falcon_mamba flex_olmo gemma gemma2 gemma3_text gemma3n_text gemma4_text glm
glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss gptj granite granitemoe
granitemoehybrid granitemoeshared helium hunyuan_v1_dense hunyuan_v1_moe jamba jetmoe lfm2 llama llama4_text
longcat_flash mamba mamba2 minimax minimax_m2 ministral ministral3 mistral mixtral modernbert-decoder mpt nanochat
nemotron nemotron_h olmo olmo2 olmo3 olmoe opt persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_5_moe_text
qwen3_5_text qwen3_moe qwen3_next recurrent_gemma rwkv seed_oss smollm3 solar_open stablelm starcoder2 vaultgemma
youtu
""".split()  # noqa: SIM905  (readable as text)
EXPERTS = [
    "olmoe",
    "qwen3_moe",
    "mixtral",
    "deepseek_v3",
    "glm4_moe",
    "gpt_oss",
    "qwen2_moe",
    "ernie4_5_moe",
    "minimax",
]
DENSE = ["llama", "qwen2", "qwen3", "gemma3_text", "phi3", "mistral", "olmo2"]


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(before)


def default(model_type: str, **changes: Any) -> dict[str, Any]:
    return dict(AutoConfig.for_model(model_type, **changes).to_dict())


def build(toy: dict[str, Any], device: str = "meta") -> Any:
    config = type(AutoConfig.for_model(toy["model_type"])).from_dict(toy)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, attn_implementation="eager")


@pytest.mark.parametrize("model_type", sampled(DECODERS, *sorted(DECODERS)[::3]))
def test_the_toy_of_a_default_config_builds_small_and_runs(model_type: str) -> None:
    toy = toy_config(default(model_type))
    model = build(toy, "cpu")
    ids = torch.randint(5, 100, (2, 20), generator=torch.Generator().manual_seed(0))

    answer = model(input_ids=ids, labels=ids, use_cache=False)

    assert sum(parameter.numel() for parameter in model.parameters()) < 5_000_000
    assert torch.isfinite(answer.loss)


@pytest.mark.parametrize("model_type", EXPERTS + DENSE)
def test_no_two_dimensions_of_a_weight_are_equal(model_type: str) -> None:
    """Where the config has no head_dim, the architecture itself makes the query projection square."""
    toy = toy_config(default(model_type))
    square = () if "head_dim" in toy else ("q_proj.weight", "o_proj.weight")
    for name, parameter in build(toy).named_parameters():
        assert name.endswith(square) or len(set(parameter.shape)) == parameter.dim(), f"{name} {list(parameter.shape)}"


@pytest.mark.parametrize("model_type", EXPERTS)
def test_the_width_of_an_expert_cannot_be_taken_for_another_dimension(model_type: str) -> None:
    stacked = {
        name: list(p.shape) for name, p in build(toy_config(default(model_type))).named_parameters() if p.dim() == 3
    }

    assert stacked
    for name, (experts, rows, columns) in stacked.items():
        assert rows not in (2 * columns, columns), name
        assert columns != 2 * rows, name
        assert experts not in (rows, columns, 2 * columns), name


def test_a_toy_leaves_its_source_alone() -> None:
    source = default("gpt_oss")
    before = copy.deepcopy(source)

    toy_config(source)

    assert source == before


def test_decisions_are_kept_and_only_sizes_change() -> None:
    source = default("qwen3_moe", norm_topk_prob=True, attention_bias=True, tie_word_embeddings=True, rms_norm_eps=1e-5)

    toy = toy_config(source)

    for key in (
        "norm_topk_prob",
        "attention_bias",
        "tie_word_embeddings",
        "rms_norm_eps",
        "hidden_act",
        "rope_parameters",
    ):
        assert toy[key] == source[key], key


def test_nothing_random_is_left_and_the_router_loss_is_asked_for() -> None:
    toy = toy_config(default("mixtral", attention_dropout=0.1, router_jitter_noise=0.2))

    assert (toy["attention_dropout"], toy["router_jitter_noise"]) == (0.0, 0.0)
    assert toy["output_router_logits"] is True
    assert "output_router_logits" not in toy_config(default("llama"))
    assert toy_config(default("qianfan_ocr"))["vision_config"]["drop_path_rate"] == 0.0


def test_heads_and_experts_can_be_spread_over_processes() -> None:
    toy = toy_config(default("qwen3_moe"))

    assert toy["num_attention_heads"] % toy["num_key_value_heads"] == 0
    assert toy["num_attention_heads"] % 4 == 0
    assert toy["num_local_experts"] % 2 == 0
    assert toy["num_experts_per_tok"] < toy["num_local_experts"]


@pytest.mark.parametrize(("given", "expected"), [(1, 1), (2, 2), (8, 3)])
def test_fewer_experts_for_a_token_than_the_toy_has_are_kept(given: int, expected: int) -> None:
    assert toy_config(default("mixtral", num_experts_per_tok=given))["num_experts_per_tok"] == expected


def test_one_key_head_for_all_stays_one() -> None:
    assert toy_config(default("deepseek_v4"))["num_key_value_heads"] == 1


def test_latent_attention_keeps_its_own_arithmetic() -> None:
    toy = toy_config(default("deepseek_v3"))

    assert toy["qk_head_dim"] == toy["qk_nope_head_dim"] + toy["qk_rope_head_dim"]
    assert toy["head_dim"] == toy["qk_rope_head_dim"]
    assert toy["num_key_value_heads"] == toy["num_attention_heads"]
    assert toy["v_head_dim"] not in (toy["qk_head_dim"], toy["qk_nope_head_dim"])


def test_the_share_of_a_latent_head_that_rotates_follows_its_sizes() -> None:
    toy = toy_config(default("mistral4"))

    assert toy["rope_parameters"]["partial_rotary_factor"] * toy["head_dim"] == toy["qk_rope_head_dim"]


def test_groups_of_experts_are_legal() -> None:
    toy = toy_config(default("deepseek_v3"))

    assert toy["n_routed_experts"] % toy["n_group"] == 0
    assert toy["topk_group"] < toy["n_group"]
    assert toy["num_experts_per_tok"] <= toy["topk_group"] * toy["n_routed_experts"] // toy["n_group"]


class TestLayers:
    def test_a_uniform_model_keeps_two(self) -> None:
        assert toy_config(default("llama"))["num_hidden_layers"] == 2

    def test_a_model_of_one_layer_keeps_it(self) -> None:
        assert toy_config(default("llama", num_hidden_layers=1))["num_hidden_layers"] == 1

    def test_dense_layers_before_the_sparse_ones_leave_one_of_each(self) -> None:
        toy = toy_config(default("deepseek_v3"))

        assert (toy["num_hidden_layers"], toy["first_k_dense_replace"]) == (2, 1)

    def test_no_dense_layer_stays_none(self) -> None:
        toy = toy_config(default("deepseek_v3", first_k_dense_replace=0))

        assert (toy["num_hidden_layers"], toy["first_k_dense_replace"]) == (2, 0)

    def test_each_type_of_attention_layer_stays_in_the_models_order(self) -> None:
        toy = toy_config(default("gemma3_text"))

        assert toy["layer_types"] == ["sliding_attention", "full_attention"]
        assert toy["num_hidden_layers"] == 2
        assert 0 < toy["sliding_window"] < 20

    def test_layers_that_differ_in_two_ways_keep_every_combination(self) -> None:
        source = default("deepseek_v4")
        toy = toy_config(source)

        kept = set(zip(toy["layer_types"], toy["mlp_layer_types"], strict=True))
        assert kept == set(zip(source["layer_types"], source["mlp_layer_types"], strict=True))
        assert toy["num_hidden_layers"] == len(toy["layer_types"]) == len(kept)

    def test_numbers_of_dense_layers_move_with_the_layers(self) -> None:
        toy = toy_config(default("qwen3_moe", num_hidden_layers=6, mlp_only_layers=[4]))

        assert (toy["num_hidden_layers"], toy["mlp_only_layers"]) == (2, [1])

    def test_every_second_layer_sparse_shows_both_kinds_twice(self) -> None:
        toy = toy_config(default("qwen3_moe", decoder_sparse_step=3))

        assert (toy["num_hidden_layers"], toy["decoder_sparse_step"]) == (4, 2)
        kinds = [type(layer.mlp).__name__ for layer in build(toy).model.layers]
        assert kinds == ["Qwen3MoeMLP", "Qwen3MoeSparseMoeBlock"] * 2

    def test_attention_among_state_space_layers_survives(self) -> None:
        toy = toy_config(default("jamba"))
        kinds = {type(layer).__name__ for layer in build(toy).model.layers}
        experts = {type(layer.feed_forward).__name__ for layer in build(toy).model.layers}

        assert kinds == {"JambaAttentionDecoderLayer", "JambaMambaDecoderLayer"}
        assert len(experts) == 2

    def test_layers_that_share_keys_still_find_a_layer_to_share_with(self) -> None:
        toy = toy_config(default("gemma3n_text"))

        shared = toy["num_kv_shared_layers"]
        assert 0 < shared < toy["num_hidden_layers"]
        assert set(toy["layer_types"][-shared:]) <= set(toy["layer_types"][:-shared])


class TestTokens:
    def test_ids_lie_in_the_vocabulary_and_stay_distinct(self) -> None:
        toy = toy_config(default("qwen3_moe", pad_token_id=151643, bos_token_id=151644, eos_token_id=[151645, 151643]))

        assert toy["eos_token_id"][1] == toy["pad_token_id"]
        ids = {toy["pad_token_id"], toy["bos_token_id"], *toy["eos_token_id"]}
        assert len(ids) == 3
        assert max(ids) < toy["vocab_size"]

    def test_ids_that_fit_and_ids_that_are_none_are_kept(self) -> None:
        toy = toy_config(default("llama", bos_token_id=1, eos_token_id=2, pad_token_id=None))

        assert (toy["bos_token_id"], toy["eos_token_id"], toy["pad_token_id"]) == (1, 2, None)


class TestRope:
    def test_yarn_keeps_its_kind_and_its_original_length_shrinks_with_the_context(self) -> None:
        source, toy = default("gpt_oss"), toy_config(default("gpt_oss"))

        assert toy["rope_parameters"]["rope_type"] == "yarn"
        assert toy["rope_parameters"]["factor"] == source["rope_parameters"]["factor"]
        small, large = toy["rope_parameters"], source["rope_parameters"]
        assert small["original_max_position_embeddings"] < large["original_max_position_embeddings"]

    def test_lists_of_factors_fit_the_head(self) -> None:
        factors = [1.0 + index / 10 for index in range(48)]
        rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": factors, "long_factor": factors}
        toy = toy_config(default("phi3", rope_parameters={**rope, "original_max_position_embeddings": 4096}))

        pairs = toy["hidden_size"] // toy["num_attention_heads"] // 2
        assert len(toy["rope_parameters"]["short_factor"]) == len(toy["rope_parameters"]["long_factor"]) == pairs
        assert build(toy, "cpu")(input_ids=torch.ones(1, 9, dtype=torch.long)).logits.isfinite().all()

    def test_a_part_of_the_head_that_rotates_is_even_and_stays_a_part(self) -> None:
        toy = toy_config(default("stablelm"))
        width = toy["hidden_size"] // toy["num_attention_heads"]

        rotated = width * toy["rope_parameters"]["partial_rotary_factor"]
        assert rotated % 2 == 0
        assert 0 < rotated < width

    def test_types_of_layers_without_settings_get_their_own(self) -> None:
        kinds = ["sliding_attention", "full_attention"]
        toy = toy_config({**default("qwen3"), "rope_parameters": {}, "layer_types": kinds * 4})
        assert set(toy["rope_parameters"]) == set(kinds)
        assert all(rope["rope_theta"] for rope in toy["rope_parameters"].values())

    @pytest.mark.parametrize(("model_type", "given"), [("ernie4_5_vl_moe_text", True), ("llama", False)])
    def test_a_head_that_three_axes_share_is_divided_although_its_class_says_nothing(
        self, model_type: str, given: bool
    ) -> None:
        toy = toy_config({**default("llama"), "model_type": model_type, "rope_parameters": None})

        assert bool(toy["rope_parameters"]) == given
        assert not given or sum(toy["rope_parameters"]["mrope_section"]) == toy["head_dim"] // 2

    def test_settings_for_each_type_of_layer_are_kept_apart(self) -> None:
        toy = toy_config(default("gemma3_text"))

        assert toy["rope_parameters"] == default("gemma3_text")["rope_parameters"]

    def test_sections_of_multimodal_rope_add_up_to_the_rotated_pairs(self) -> None:
        rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [16, 24, 24]}

        toy = toy_config(default("qwen3", rope_parameters=rope))

        assert sum(toy["rope_parameters"]["mrope_section"]) == toy["head_dim"] // 2
        assert min(toy["rope_parameters"]["mrope_section"]) > 0


@pytest.mark.parametrize("key", ["quantization_config", "auto_map", "_name_or_path", "transformers_version"])
def test_what_belongs_to_the_published_weights_is_dropped(key: str) -> None:
    assert key not in toy_config({**default("qwen3_moe"), key: {"x": 1}})


def test_layers_are_chosen_by_tuples_as_by_lists() -> None:
    tower = {"model_type": "sam_vision_model", "hidden_size": 768, "num_hidden_layers": 12}

    toy = toy_config({**default("llama"), "vision_config": {**tower, "global_attn_indexes": (2, 5, 8, 11)}})

    assert toy["vision_config"]["num_hidden_layers"] == 2
    assert toy["vision_config"]["global_attn_indexes"] == [1]


def test_a_toy_of_a_toy_is_the_same() -> None:
    once = toy_config(default("deepseek_v3"))

    assert toy_config(once) == once


WITH_TOWERS = {
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen2_5_omni": "Qwen2_5OmniForConditionalGeneration",
    "qwen3_omni_moe": "Qwen3OmniMoeForConditionalGeneration",
    "qwen2_audio": "Qwen2AudioForConditionalGeneration",
    "gemma3": "Gemma3ForConditionalGeneration",
    "glm4v": "Glm4vForConditionalGeneration",
    "glm4v_moe": "Glm4vMoeForConditionalGeneration",
    "internvl": "InternVLForConditionalGeneration",
    "llava": "LlavaForConditionalGeneration",
    "llava_next": "LlavaNextForConditionalGeneration",
    "llava_onevision": "LlavaOnevisionForConditionalGeneration",
    "mistral3": "Mistral3ForConditionalGeneration",
    "mllama": "MllamaForConditionalGeneration",
    "paligemma": "PaliGemmaForConditionalGeneration",
    "smolvlm": "SmolVLMForConditionalGeneration",
    "aya_vision": "AyaVisionForConditionalGeneration",
    "gemma4": "Gemma4ForConditionalGeneration",
    "deepseek_vl": "DeepseekVLForConditionalGeneration",
    "voxtral": "VoxtralForConditionalGeneration",
}


def parts_of(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, value in config.items():
        if isinstance(value, dict) and key.endswith("config"):
            yield key, value
            yield from parts_of(value)


class TestTowers:
    @pytest.mark.parametrize("model_type", WITH_TOWERS)
    def test_the_toy_of_a_model_with_towers_builds_small(self, model_type: str) -> None:
        toy = toy_config(default(model_type))
        config = type(AutoConfig.for_model(model_type)).from_dict(toy)

        with torch.device("meta"):
            model = getattr(transformers, WITH_TOWERS[model_type])._from_config(config, attn_implementation="eager")

        assert sum(parameter.numel() for parameter in model.parameters()) < 5_000_000

    @pytest.mark.parametrize("model_type", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_omni_moe"])
    def test_what_a_tower_hands_on_is_as_wide_as_the_text_and_the_tower_itself_is_not(self, model_type: str) -> None:
        parts = dict(parts_of(toy_config(default(model_type))))
        text, vision = parts["text_config"]["hidden_size"], parts["vision_config"]

        handed_on = vision.get("out_hidden_size", vision["hidden_size"])
        own = vision["embed_dim"] if "embed_dim" in vision else vision["hidden_size"]
        assert handed_on == text
        assert own != text

    @pytest.mark.parametrize("model_type", WITH_TOWERS)
    def test_one_token_id_means_the_same_in_every_part(self, model_type: str) -> None:
        source, toy = default(model_type), toy_config(default(model_type))
        moved: dict[int, int] = {}
        for (_, before), (_, after) in zip([("", source), *parts_of(source)], [("", toy), *parts_of(toy)], strict=True):
            for key in before:
                if key.endswith("_token_id") and isinstance(before[key], int) and isinstance(after.get(key), int):
                    assert moved.setdefault(before[key], after[key]) == after[key], key
        assert len(set(moved.values())) == len(moved)

    def test_places_where_features_are_taken_stay_ordered(self) -> None:
        vision = toy_config(default("qwen3_vl"))["vision_config"]

        assert len(vision["deepstack_visual_indexes"]) == 2
        assert max(vision["deepstack_visual_indexes"]) < vision["depth"]

    def test_windowed_and_full_blocks_both_stay(self) -> None:
        vision = toy_config(default("qwen2_5_vl"))["vision_config"]

        assert 0 < len(vision["fullatt_block_indexes"]) < vision["depth"]
        assert vision["window_size"] % (vision["patch_size"] * vision["spatial_merge_size"]) == 0

    def test_patches_keep_their_size_where_no_image_size_depends_on_it(self) -> None:
        """Training frameworks write the shapes of an empty image down."""
        for name in ("qwen3_5", "qwen2_5_vl"):
            config = default(name)
            assert toy_config(config)["vision_config"]["patch_size"] == config["vision_config"]["patch_size"]
        vision = toy_config(default("llava"))["vision_config"]
        assert (vision["image_size"], vision["patch_size"]) == (24, 4)

    def test_speech_is_left_to_models_of_its_own(self) -> None:
        assert toy_config(default("qwen2_5_omni"))["enable_audio_output"] is False

    def test_three_axes_are_divided_even_where_the_class_does_not_say_how(self) -> None:
        text = toy_config(default("qwen2_vl"))["text_config"]

        width = text["hidden_size"] // text["num_attention_heads"]
        assert sum(text["rope_parameters"]["mrope_section"]) == width // 2

    def test_the_text_of_a_model_that_is_named_after_images_is_text(self) -> None:
        small = toy_config(transformers.GlmImageConfig().to_dict())
        text = small["text_config"]
        assert text["vocab_size"] < 1000
        assert len(text["rope_parameters"]["mrope_section"]) == 3
        assert "mrope_section" not in small["vision_config"]

    def test_a_window_that_upstream_takes_for_granted_is_kept(self) -> None:
        assert toy_config(default("qwen3_omni_moe"))["thinker_config"]["audio_config"]["n_window"] == 50


def test_what_could_not_be_read_is_left_out() -> None:
    """A config with a gap still shrinks: its class fills the gap."""
    rope = {"main": {"rope_theta": 1e4, "partial_rotary_factor": UNKNOWN}}
    toy = toy_config({"hidden_size": 4096, "num_attention_heads": 64, "head_dim": 512, "rope_parameters": rope})
    assert toy["hidden_size"] < 512
    assert "partial_rotary_factor" not in toy["rope_parameters"]["main"]


@pytest.mark.parametrize(("scale", "side"), [(2, 24), (4, 32)])
def test_a_picture_is_a_whole_number_of_merged_patches(scale: int, side: int) -> None:
    vision = {"model_type": "siglip_vision_model", "image_size": 512, "patch_size": 16, "hidden_size": 768}

    toy = toy_config({"model_type": "idefics3", "vision_config": {**vision, "scale_factor": scale}})

    assert (toy["vision_config"]["image_size"], toy["vision_config"]["patch_size"]) == (side, 4)
