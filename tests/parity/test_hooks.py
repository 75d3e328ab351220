"""What VeOmni asks of a model besides its answers."""

from pathlib import Path

import pytest

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.patchgen import run_configs
from omni_kit.scaffold import new_model
from tests.conftest import first

from .conftest import CONVERTER, MODELING, Edits, Plant

HEAD = "class Qwen3MoeForTokenClassification(GenericForTokenClassification, Qwen3MoePreTrainedModel):\n"
PASSED_ON = "        return super().forward(*args, **more)"
PLAN, REGISTRY = "parallel_plan.py", "__init__.py"
FAULTS: dict[str, tuple[Edits, str]] = {
    "no class is sharded": (
        {MODELING: [('_no_split_modules = ["Qwen3MoeDecoderLayer"]', "_no_split_modules = []")]},
        "_no_split_modules: it is empty",
    ),
    "a class that is not there": (
        {MODELING: [('_no_split_modules = ["Qwen3MoeDecoderLayer"]', '_no_split_modules = ["Qwen2MoeDecoderLayer"]')]},
        "_no_split_modules: it names Qwen2MoeDecoderLayer, but no module has such a class",
    ),
    "a stack is not in the plan": (
        {PLAN: [('        "model.layers.*.mlp.experts.down_proj": Shard(0),\n', "")]},
        "get_parallel_plan: model.layers.0.mlp.experts.down_proj is a stack of experts, too, and not in the plan",
    ),
    "a plan of other names": (
        {PLAN: [("mlp.experts.down_proj", "mlp.expert.down_proj")]},
        "ep: 'model.layers.*.mlp.expert.down_proj' matches no parameter",
    ),
    "experts are cut along another axis": (
        {PLAN: [('down_proj": Shard(0)', 'down_proj": Shard(1)')]}, "is sharded along dimension 1",
    ),
    "adapters find nothing": (
        {REGISTRY: [("model_cls._convert_lora_targets_to_parameters", "model_cls._convert_lora"),
                    ("Qwen3MoeModel._convert_lora_targets_to_parameters", "Qwen3MoeModel._convert_lora")]},
        "_convert_lora_targets_to_parameters: it is missing",
    ),
    "adapters of parameters that do not exist": (
        {REGISTRY: [('"model.layers.*.mlp.experts.gate_up_proj",', '"model.layers.*.mlp.experts.gate",')]},
        "_convert_lora_targets_to_parameters: ValueError",
    ),
    "adapters of one projection are those of another": (
        {REGISTRY: [('"model.layers.*.mlp.experts.gate_up_proj",', '"SWAP",'),
                    ('"model.layers.*.mlp.experts.down_proj",', '"model.layers.*.mlp.experts.gate_up_proj",'),
                    ('"SWAP",', '"model.layers.*.mlp.experts.down_proj",')]},
        "for gate_proj alone, it returns model.layers.*.mlp.experts.down_proj",
    ),
    "a converter keeps what it has given out": (
        {CONVERTER: [("        del self._expert_buffer[buf_key]\n", ""), ("if self._expert_buffer:", "if False:")]},
        "_create_checkpoint_tensor_converter: it keeps",
    ),
    "everything in one shard": (
        {REGISTRY: [("staticmethod(convert_qwen3_moe_fqn_to_index_mapping)",
                     "staticmethod(lambda found: dict.fromkeys(convert_qwen3_moe_fqn_to_index_mapping(found), 1))")]},
        "_convert_fqn_to_index_mapping: it puts everything into one shard",
    ),
    "another device lacks a class": (
        {REGISTRY: [("moe_npu import (\n            Qwen3MoeForC", "moe_npu import (\n            Qwen3MoeForC_")]},
        "what is registered: with IS_NPU_AVAILABLE, 'qwen3_moe' gives ImportError",
    ),
    "another device gets another class": (
        {REGISTRY: [('    if "ForCausalLM" in architecture:',
                     '    if IS_NPU_AVAILABLE and "Token" in architecture:\n        return Qwen3MoeForCausalLM\n'
                     '    if "ForCausalLM" in architecture:')]},
        "'qwen3_moe' gives Qwen3MoeForCausalLM for Qwen3MoeForTokenClassification, and "
        "Qwen3MoeForTokenClassification without",
    ),
    "a config without architectures gets the trunk": (
        {REGISTRY: [('    if "ForCausalLM" in architecture:',
                     '    if architecture is None:\n        return Qwen3MoeModel\n'
                     '    if "ForCausalLM" in architecture:')]},
        "'qwen3_moe' gives Qwen3MoeModel for a config without architectures",
    ),
    "a class that is known and not given": (
        {REGISTRY: [('    elif "ForTokenClassification" in', '    elif "ForTokenClassificaton" in')]},
        "'qwen3_moe' gives Qwen3MoeForCausalLM for Qwen3MoeForTokenClassification, which it knows",
    ),
    "a head trains on embeddings": (
        {MODELING: [(f"{HEAD}    pass",
                     f"{HEAD}    def forward(self, *args, inputs_embeds=None, **more):\n{PASSED_ON}")]},
        "a training step of Qwen3MoeForTokenClassification on inputs_embeds ends in ValueError",
    ),
    "a head passes on its keywords": (
        {MODELING: [(f"{HEAD}    pass",
                     f"{HEAD}    def forward(self, *args, output_hidden_states=None, **more):\n{PASSED_ON}")]},
        "output_hidden_states, returns no hidden_states, and upstream does",
    ),
}  # fmt: skip


@pytest.mark.sweep
def test_experts_of_prediction_layers_are_not_stacked(tmp_path: Path, sides: Sides) -> None:
    new_model("mine", "glm4_moe", target="veomni", into=tmp_path)
    run_configs(sorted((tmp_path / "mine").glob("*_patch_gen_config.py")))
    assert run_parity(tmp_path / "mine", ["hooks"], sides=sides).level("hooks").status == "pass"

    converter = tmp_path / "mine" / CONVERTER
    text = converter.read_text(encoding="utf-8")
    converter.write_text(text.replace("expert.group(1) in self._modules", "True"), encoding="utf-8")
    found = run_parity(tmp_path / "mine", ["hooks"], sides=sides).level("hooks")
    assert found.status == "fail"
    assert "of a prediction layer, which fill no parameter" in found.reason


@pytest.mark.sweep
def test_a_classifier_passes_on_the_number_of_items(tmp_path: Path, sides: Sides) -> None:
    new_model("classified", "smollm3", target="veomni", into=tmp_path)
    run_configs(sorted((tmp_path / "classified").glob("*_patch_gen_config.py")))
    assert run_parity(tmp_path / "classified", ["hooks"], sides=sides).level("hooks").status == "pass"

    (modeling,) = (tmp_path / "classified" / "generated").glob("patched_modeling_*.py")
    text = modeling.read_text(encoding="utf-8")
    modeling.write_text(text.replace("num_labels=self.num_labels, **kwargs)", "num_labels=self.num_labels)"), "utf-8")
    found = run_parity(tmp_path / "classified", ["hooks"], sides=sides).level("hooks")
    assert found.status == "fail"
    assert "SmolLM3ForSequenceClassification.forward does not pass num_items_in_batch" in found.reason


@pytest.mark.sweep
def test_keys_of_prediction_layers_may_be_renamed(tmp_path: Path, sides: Sides) -> None:
    new_model("keys_renamed", "ernie4_5_moe", target="veomni", into=tmp_path)
    run_configs(sorted((tmp_path / "keys_renamed").glob("*_patch_gen_config.py")))
    found = run_parity(tmp_path / "keys_renamed", ["hooks"], sides=sides).level("hooks")
    assert found.status == "pass", found.reason


def test_the_copy_itself_passes(plant: Plant, sides: Sides) -> None:
    found = run_parity(plant("hooked", {}), ["hooks"], sides=sides).level("hooks")
    assert (found.status, found.reason.partition(":")[0]) == ("pass", "7 called")


@pytest.mark.parametrize("fault", first(3, FAULTS))
def test_a_hook_that_is_wrong_is_named(fault: str, plant: Plant, sides: Sides) -> None:
    edits, said = FAULTS[fault]
    found = run_parity(plant(f"hooked_{list(FAULTS).index(fault)}", edits), ["hooks"], sides=sides).level("hooks")
    assert found.status == "fail"
    assert said in found.reason
