"""What VeOmni's own LoRA makes of a model."""

from pathlib import Path

import pytest

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides
from tests.conftest import first

from .conftest import MODELING, Edits, Plant

REGISTRY, CONVERTER = "__init__.py", "checkpoint_tensor_converter.py"
FAULTS: dict[str, tuple[Edits, str]] = {
    "a projection is read around its adapter": (
        {MODELING: [("self.v_proj(hidden_states)",
                     "nn.functional.linear(hidden_states, getattr(self.v_proj, 'base_layer', self.v_proj).weight)")]},
        "v_proj.lora_A.default.weight",
    ),
    "no name for experts is translated": (
        {REGISTRY: [("model_cls._convert_lora_targets_to_parameters", "model_cls._convert_lora"),
                    ("Qwen3MoeModel._convert_lora_targets_to_parameters", "Qwen3MoeModel._convert_lora")]},
        "no name for experts is translated, so they get no adapter",
    ),
    "names of experts are translated to one of their projections alone": (
        {REGISTRY: [("mlp.experts.gate_up_proj\"", "mlp.experts.down_proj\"")]},
        "experts.gate_up_proj get no adapter: names of experts are translated to",
    ),
    "an attribute that a wrapped layer has not": (
        {MODELING: [("self.v_proj(hidden_states)", "self.v_proj(hidden_states.to(self.v_proj.weight.dtype))")]},
        "'LoraLinear' object has no attribute 'weight'",
    ),
    "a converter that knows modules by their names without adapters": (
        {CONVERTER: [("    return Qwen3MoeCheckpointTensorConverter(\n",
                      "    if 'model.layers.0' not in dict(model.named_modules()):\n        return None\n"
                      "    return Qwen3MoeCheckpointTensorConverter(\n")]},
        "the converter of the model with adapters leaves out model.layers.0.mlp.experts.0.",
    ),
}  # fmt: skip


def test_the_copy_itself_passes(plant: Plant, sides: Sides) -> None:
    found = run_parity(plant("adapted", {}), ["lora"], sides=sides).level("lora")
    assert found.status == "pass", found.reason
    assert found.reason == (
        "one adapter an expert: 28 adapters; one for all experts: 28 adapters; 16 choices of one projection or two"
    )


def test_a_projection_that_works_beside_others_alone_is_named(plant: Plant, sides: Sides) -> None:
    called = "self.o_proj(attn_output)"
    wrapped = "hasattr(self.q_proj, 'base_layer') or not hasattr(self.o_proj, 'base_layer')"
    alone = [(called, f"{called} if {wrapped} else self.o_proj.base_layer(attn_output)")]
    found = run_parity(plant("adapted_alone", {MODELING: alone}), ["lora"], sides=sides).level("lora")
    assert found.status == "fail"
    assert found.reason.startswith("o_proj alone: ")
    assert "q_proj alone" not in found.reason


@pytest.mark.parametrize("fault", first(2, FAULTS))
def test_adapters_that_do_not_work_are_named(fault: str, plant: Plant, sides: Sides) -> None:
    edits, said = FAULTS[fault]
    found = run_parity(plant(f"adapted_{list(FAULTS).index(fault)}", edits), ["lora"], sides=sides).level("lora")
    assert found.status == "fail"
    assert said in found.reason


@pytest.mark.sweep
def test_a_diffusion_transformer_is_adapted_as_well(sides: Sides) -> None:
    wan = Path(__file__).parents[2] / "reference_models" / "veomni" / "wan"
    found = run_parity(wan, ["lora"], sides=sides).level("lora")
    assert found.status == "pass", found.reason
    assert found.reason.startswith("linear layers: 52 adapters; ")
