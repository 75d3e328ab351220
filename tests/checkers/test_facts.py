"""What is known about a model directory: registrations, classes, generated files, plans, experts, configs."""

from pathlib import Path
from typing import Any

import pytest

from omni_checkers import NotApplicable
from omni_checkers.engine.facts import Facts
from omni_checkers.symbolic import Symbol
from omni_checkers.veomni.facts.configs import ConfigRecord, ModelRecord, nested_text_configs
from omni_checkers.veomni.facts.constants import constant, veomni_package
from omni_checkers.veomni.facts.model import model_facts
from omni_checkers.veomni.facts.upstream import config_of, upstream_class
from omni_kit.pysource.library import find_library
from omni_kit.upstream.transformers.configs import config_class
from omni_kit.upstream.transformers.defaults import default_config
from omni_kit.upstream.transformers.traits import expert_parameters


@pytest.fixture(scope="module")
def facts_of(veomni_models: Path) -> Any:
    """The facts about one of VeOmni's own models, computed once."""
    known: dict[str, Facts] = {}

    def facts(name: str) -> Facts:
        if name not in known:
            known[name] = model_facts(veomni_models / name)[0]
        return known[name]

    return facts


class TestRegistrations:
    @pytest.mark.parametrize(
        ("model", "expected"),
        [
            ("llama", {("MODELING_REGISTRY", "llama")}),
            ("qwen3_5", {("MODELING_REGISTRY", "qwen3_5"), ("MODELING_REGISTRY", "qwen3_5_text")}),
            ("flux", {("MODELING_REGISTRY", "flux"), ("MODEL_CONFIG_REGISTRY", "flux")}),
            (
                "qwen2_5vl",
                {
                    ("MODELING_REGISTRY", "qwen2_5_vl"),
                    ("MODEL_CONFIG_REGISTRY", "qwen2_5_vl"),
                    ("MODEL_CONFIG_REGISTRY", "qwen2_5_vl_text"),
                },
            ),
            (
                "movqgan",
                {
                    ("MODELING_REGISTRY", "movqgan"),
                    ("MODEL_CONFIG_REGISTRY", "movqgan"),
                    ("MODEL_PROCESSOR_REGISTRY", "MoVQGANProcessor"),
                },
            ),
        ],
    )
    def test_every_registry_is_seen(self, model: str, expected: set[tuple[str, str]], facts_of: Any) -> None:
        assert {(item.registry, item.key) for item in facts_of(model).get("registrations")} == expected

    @pytest.mark.parametrize(
        ("model", "expected"),
        [
            ("qwen3_moe", {"ForCausalLM", "ForQuestionAnswering", "ForTokenClassification", "Model"}),
            ("deepseek_v3", {"ForCausalLM", "ForSequenceClassification", "ForTokenClassification", "Model"}),
            ("gpt_oss", {"ForCausalLM", "ForSequenceClassification", "ForTokenClassification", "Model"}),
        ],
    )
    def test_every_class_that_can_be_returned_is_found(self, model: str, expected: set[str], facts_of: Any) -> None:
        names = {item.name for item in facts_of(model).get("returned")}
        prefix = next(name for name in names if name.endswith("ForCausalLM")).removesuffix("ForCausalLM")
        assert names == {prefix + ending for ending in expected}

    def test_both_devices_are_followed(self, facts_of: Any) -> None:
        files = {item.value.module.path.stem for item in facts_of("qwen3_moe").get("returned")}
        assert files == {"patched_modeling_qwen3_moe_gpu", "patched_modeling_qwen3_moe_npu"}

    def test_classes_of_transformers_are_symbols(self, facts_of: Any) -> None:
        symbols = {str(item.value) for item in facts_of("qwen3_omni_moe").get("returned")}
        module = "transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe"
        assert f"{module}.Qwen3OmniMoeTalkerModel" in symbols

    def test_what_is_attached_is_found_on_every_path(self, facts_of: Any) -> None:
        for item in facts_of("deepseek_v4").get("returned"):
            assert item.attached("_create_checkpoint_tensor_converter") is not None
            assert item.attached("_create_something_else") is None


class TestGenerated:
    def test_files_configs_and_sources_belong_together(self, facts_of: Any) -> None:
        for item in facts_of("deepseek_v3").get("generated"):
            assert item.config is not None
            assert item.config.output == item.file.path
            assert item.source_module == "transformers.models.deepseek_v3.modeling_deepseek_v3"
            assert not item.ours

    def test_only_what_was_patched_counts_as_patched(self, facts_of: Any) -> None:
        item = facts_of("llama").get("generated")[0]
        patched = {f"{owner}.{function.name}".strip(".") for owner, function in item.patched}
        assert "LlamaForCausalLM.forward" in patched
        assert "LlamaAttention.forward" not in patched

    def test_without_generated_files_rules_do_not_apply(self, facts_of: Any) -> None:
        with pytest.raises(NotApplicable, match="no generated modeling file"):
            facts_of("flux").get("generated")


class TestPlans:
    @pytest.mark.parametrize("model", ["qwen3_moe", "deepseek_v4", "qwen3_vl_moe", "qwen3_omni_moe"])
    def test_keys_are_read_from_the_function_that_the_method_calls(self, model: str, facts_of: Any) -> None:
        for plan in facts_of(model).get("plans"):
            assert not plan.unread
            assert {key.rpartition(".")[2] for key in plan.keys["ep"]} == {"gate_up_proj", "down_proj"}
            assert plan.path.name == "parallel_plan.py"

    def test_each_class_has_its_own(self, facts_of: Any) -> None:
        prefixes = {plan.class_name: plan.keys["ep"][0] for plan in facts_of("qwen3_5_moe").get("plans")}
        assert prefixes["Qwen3_5MoeForCausalLM"].startswith("model.layers.")
        assert prefixes["Qwen3_5MoeForConditionalGeneration"].startswith("model.language_model.layers.")


class TestKinds:
    @pytest.mark.parametrize(
        ("model", "kinds"),
        [
            ("llama", {"llm"}),
            ("qwen3_moe", {"moe"}),
            ("qwen3_vl", {"vlm"}),
            ("qwen3_vl_moe", {"vlm-moe"}),
            ("qwen2_5_omni", {"omni"}),
            ("qwen3_omni_moe", {"omni-moe"}),
            ("qwen3_5_moe", {"vlm-moe", "moe"}),
            ("flux", set()),
        ],
    )
    def test_are_told_from_config_and_experts(self, model: str, kinds: set[str], facts_of: Any) -> None:
        assert facts_of(model).get("kinds") == kinds


class TestExperts:
    @pytest.mark.parametrize(
        ("model", "split"),
        [("qwen3_moe", True), ("qwen3_omni_moe", True), ("qwen3_vl_moe", False), ("gpt_oss", False)],
    )
    def test_recipes_that_merge_are_told_from_those_that_do_not(self, model: str, split: bool, facts_of: Any) -> None:
        facts = facts_of(model)
        name = {"qwen3_omni_moe": "ForConditionalGeneration", "qwen3_vl_moe": "ForConditionalGeneration"}
        item = next(r for r in facts.get("returned") if r.name.endswith(name.get(model, "ForCausalLM")))
        stacked = facts.get("experts").of(item.value)
        assert stacked.parameter.endswith("experts.gate_up_proj")
        assert bool(stacked.split) is split

    def test_heads_that_upstream_builds_generically_are_read_too(self, facts_of: Any) -> None:
        facts = facts_of("qwen3_moe")
        item = next(r for r in facts.get("returned") if r.name == "Qwen3MoeForQuestionAnswering")
        assert facts.get("experts").of(item.value).parameter.endswith("experts.gate_up_proj")

    def test_a_class_without_layers_that_can_be_read_is_not_judged(self, facts_of: Any) -> None:
        facts = facts_of("qwen3_moe")
        with pytest.raises(NotApplicable, match="cannot be read"):
            facts.get("experts").of(Symbol("transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeRotaryEmbedding"))


class TestUpstream:
    LIBRARY = find_library("transformers")

    def test_a_default_config_has_few_layers_and_all_parameters(self) -> None:
        model = upstream_class(config_class(self.LIBRARY, "deepseek_v3"), "DeepseekV3ForCausalLM")
        assert model is not None
        assert default_config(model.config.cls).get("num_hidden_layers") == 6
        assert {p.name.rpartition(".")[2] for p in expert_parameters(model.skeleton)} == {"gate_up_proj", "down_proj"}

    def test_a_class_that_transformers_does_not_have(self) -> None:
        assert upstream_class(config_class(self.LIBRARY, "olmoe"), "OlmoeForEverything") is None

    def test_nested_configs_are_filled_in(self) -> None:
        values = default_config(config_class(self.LIBRARY, "qwen3_vl_moe")).given
        assert values["text_config"]["model_type"] == "qwen3_vl_moe_text"

    @pytest.mark.parametrize(
        ("model_type", "names"),
        [("olmoe", []), ("qwen3_vl_moe", ["Qwen3VLMoeTextConfig"]), ("qwen3_omni_moe", ["Qwen3OmniMoeTextConfig"])],
    )
    def test_nested_text_configs(self, model_type: str, names: list[str]) -> None:
        assert [cls.name for cls in nested_text_configs(config_class(self.LIBRARY, model_type))] == names

    def test_the_config_of_a_class_is_read_from_its_annotation(self) -> None:
        model = upstream_class(config_class(self.LIBRARY, "qwen3_moe"), "Qwen3MoeForCausalLM")
        assert model is not None
        found = config_of(model.source, "Qwen3MoeForCausalLM")
        assert found is not None
        assert found.name == "Qwen3MoeConfig"


class TestConfigRecord:
    LIBRARY = find_library("transformers")

    def test_attributes_aliases_and_methods_exist_and_nothing_else(self) -> None:
        record = ConfigRecord(config_class(self.LIBRARY, "deepseek_v3"))
        for name in ("n_routed_experts", "num_local_experts", "hidden_size", "to_dict", "architectures"):
            record.attribute(name)
        with pytest.raises(KeyError):
            record.attribute("num_experts_of_another_family")

    def test_values_are_given_under_every_alias(self) -> None:
        record = ConfigRecord(config_class(self.LIBRARY, "deepseek_v3"), lambda cls: {"n_routed_experts": 3})
        assert record.attribute("num_local_experts") == 3

    def test_nested_configs_are_records(self) -> None:
        model = ModelRecord(config_class(self.LIBRARY, "qwen3_vl_moe"), lambda cls: {"num_experts": 3})
        assert model.attribute("config").attribute("text_config").attribute("num_experts") == 3
        with pytest.raises(KeyError):
            model.attribute("config").attribute("num_experts")


class TestConstants:
    def test_a_shared_pattern_of_veomni_is_known(self, facts_of: Any) -> None:
        package = veomni_package(facts_of("qwen3_moe").get("model_dir"))
        assert package is not None
        pattern = constant(package, "veomni.models._moe_fused_weight_map.PER_EXPERT_SPLIT_TO_FUSED_PATTERN")
        assert pattern.match("model.layers.0.mlp.experts.1.up_proj.weight")

    @pytest.mark.parametrize(
        "name", ["veomni.models.loader.MODELING_REGISTRY", "veomni.nothing.AT_ALL", "veomni.models.loader.nothing"]
    )
    def test_what_is_no_constant_is_not(self, name: str, facts_of: Any) -> None:
        package = veomni_package(facts_of("qwen3_moe").get("model_dir"))
        assert package is not None
        assert constant(package, name) is None
