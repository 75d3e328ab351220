"""Faults planted into a copy of VeOmni's qwen3_moe: each is caught at the level that can see it, and no earlier."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file
from transformers import AutoConfig

from omni_kit.parity import DEFAULT_LEVELS, ParityReport, make_toy_checkpoint, run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.toys.configs.language import toy_config
from tests.conftest import sampled

from .conftest import CONVERTER, MODELING, Edits, Plant


@dataclass(frozen=True)
class Fault:
    """What is replaced, what each level must then say, words of its first failure, and the module to blame."""

    edits: Edits
    passes: tuple[str, ...]
    fails: tuple[str, ...]
    words: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()
    module: str = ""


EXPERTS = "model.layers.0.mlp.experts."
FAULTS = {
    "converter_matches_nothing": Fault(
        {
            CONVERTER: [
                (
                    "_EXPERT_PATTERN = PER_EXPERT_SPLIT_TO_FUSED_PATTERN",
                    "import re\n_EXPERT_PATTERN = re.compile('(?!)')",
                )
            ]
        },
        passes=("import",),
        fails=("roundtrip", "keys", "forward", "backward"),
        words=(EXPERTS + "gate_up_proj", EXPERTS + "down_proj", "never loaded"),
        module="model.layers.0.mlp.experts",
    ),
    "gate_and_up_swapped": Fault(
        {CONVERTER: [("torch.cat([gate, up], dim=1)", "torch.cat([up, gate], dim=1)")]},
        passes=("import", "keys"),
        fails=("roundtrip", "forward", "backward"),
        words=(EXPERTS + "gate_up_proj (gate and up are swapped)",),
        module="model.layers.0.mlp.experts",
    ),
    "gate_and_up_interleaved": Fault(
        {CONVERTER: [("torch.cat([gate, up], dim=1)", "torch.stack([gate, up], dim=2).flatten(1, 2)")]},
        passes=("import", "keys"),
        fails=("roundtrip", "forward", "backward"),
        words=(EXPERTS + "gate_up_proj (gate and up are interleaved)",),
        module="model.layers.0.mlp.experts",
    ),
    "down_viewed_instead_of_transposed": Fault(
        {CONVERTER: [('.experts.down_proj", stacked)', '.experts.down_proj", stacked.mT.reshape(stacked.shape))')]},
        passes=("import", "keys"),
        fails=("roundtrip", "forward", "backward"),
        words=(EXPERTS + "down_proj", "wrong order"),
        module="model.layers.0.mlp.experts",
    ),
    "experts_in_reverse": Fault(
        {CONVERTER: [("for i in range(self.num_experts)]", "for i in reversed(range(self.num_experts))]")]},
        passes=("import", "keys"),
        fails=("roundtrip", "forward", "backward"),
        words=(EXPERTS + "gate_up_proj", "wrong order"),
        module="model.layers.0.mlp.experts",
    ),
    "down_transposed": Fault(
        {CONVERTER: [('.experts.down_proj", stacked)', '.experts.down_proj", stacked.mT)')]},
        passes=("import",),
        fails=("roundtrip", "keys"),
        words=("RuntimeError", "size"),
        skips=("forward", "backward"),
    ),
    "export_drops_the_experts": Fault(
        {"__init__.py": [("_convert_fqn_to_index_mapping = staticmethod", "_unused = staticmethod")]},
        passes=("import", "forward", "backward"),
        fails=("roundtrip", "keys"),
        words=("exported", "missing_keys", EXPERTS + "down_proj"),
    ),
    "a_parameter_is_renamed": Fault(
        {MODELING: [("self.down_proj", "self.down"), ("module.down_proj", "module.down")]},
        passes=("import",),
        fails=("keys", "roundtrip", "forward", "backward"),
        words=(EXPERTS + "down_proj", EXPERTS + "down", "missing"),
        module="model.layers.0.mlp.experts",
    ),
    "query_norm_dropped": Fault(
        {
            MODELING: [
                (
                    "self.q_norm(self.q_proj(hidden_states).view(hidden_shape))",
                    "self.q_proj(hidden_states).view(hidden_shape)",
                )
            ]
        },
        passes=("import", "keys", "roundtrip"),
        fails=("forward", "backward"),
        words=("logits", "loss"),
        module="model.layers.0.self_attn",
    ),
    "one_expert_scaled": Fault(
        {MODELING: [("self.act_fn(gate) * up\n", "self.act_fn(gate) * up * (1.01 if expert_idx == 3 else 1.0)\n")]},
        passes=("import", "keys", "roundtrip"),
        fails=("forward", "backward"),
        words=("logits", "loss"),
        module="model.layers.0.mlp.experts",
    ),
    "router_logits_after_softmax": Fault(
        {MODELING: [("return router_logits, router_top_value", "return routing_weights, router_top_value")]},
        passes=("import", "keys", "roundtrip"),
        fails=("forward", "backward"),
        words=("aux_loss",),
        module="model.layers.0.mlp.gate",
    ),
    "auxiliary_loss_not_added": Fault(
        {MODELING: [("loss += self.router_aux_loss_coef * aux_loss.to(loss.device)", "pass")]},
        passes=("import", "keys", "roundtrip"),
        fails=("forward", "backward"),
        words=("loss",),
        module="Qwen3MoeForCausalLM",
    ),
    "padding_mask_ignored": Fault(
        {
            MODELING: [
                (
                    "attention_mask=attention_mask,\n            position_ids=position_ids,\n            past_key",
                    "attention_mask=None,\n            position_ids=position_ids,\n            past_key",
                )
            ]
        },
        passes=("import", "keys", "roundtrip"),
        fails=("forward", "backward"),
        words=("logits",),
        module="Qwen3MoeForCausalLM",
    ),
    "router_detached": Fault(
        {
            MODELING: [
                (
                    "router_top_value = router_top_value.to(router_logits.dtype)",
                    "router_top_value = router_top_value.detach()",
                )
            ]
        },
        passes=("import", "keys", "roundtrip", "forward"),
        fails=("backward",),
        words=("mlp.gate.weight",),
        module="model.layers.1.mlp.gate",
    ),
    "an_expert_projection_detached": Fault(
        {MODELING: [("self.down_proj[expert_idx])", "self.down_proj[expert_idx].detach())")]},
        passes=("import", "keys", "roundtrip", "forward"),
        fails=("backward",),
        words=(EXPERTS + "down_proj", "missing"),
        module="model.layers.1.mlp.experts",
    ),
    "import_raises": Fault(
        {
            "__init__.py": [
                (
                    "from veomni.models.loader import MODELING_REGISTRY",
                    "from veomni.models.loader import MODELING_REGISTRY\n1 / 0",
                )
            ]
        },
        passes=(),
        fails=("import",),
        words=("ZeroDivisionError", "__init__.py"),
        skips=("keys", "roundtrip", "forward", "backward"),
    ),
}

QUICK = ("gate_and_up_swapped", "export_drops_the_experts", "router_detached", "import_raises")
"""One for each level that is the first to see a fault."""


@pytest.fixture(scope="session")
def qwen3_moe_checkpoint(tmp_path_factory: pytest.TempPathFactory, sides: Sides) -> Path:
    return make_toy_checkpoint("qwen3_moe", tmp_path_factory.mktemp("toy") / "qwen3_moe", sides=sides)


def test_the_copy_itself_passes(plant: Plant, sides: Sides) -> None:
    report = run_parity(plant("copy_without_fault", {}), [*DEFAULT_LEVELS, "modules"], sides=sides)

    assert report.ok, _show(report)
    assert report.first_divergence is None
    assert max(report.level("forward").max_rel or 0, report.level("backward").max_rel or 0) == 0.0


@pytest.mark.parametrize("name", sampled(FAULTS, *QUICK))
def test_a_planted_fault_fails_the_levels_that_can_see_it(name: str, plant: Plant, sides: Sides) -> None:
    fault = FAULTS[name]

    report = run_parity(plant(name, fault.edits), DEFAULT_LEVELS, sides=sides)

    expected = dict.fromkeys(fault.passes, "pass")
    expected |= dict.fromkeys(fault.fails, "fail")
    expected |= dict.fromkeys(fault.skips, "skip")
    assert {level.level: level.status for level in report.levels} == expected, _show(report)
    for word in fault.words:
        assert word in report.level(fault.fails[0]).reason
    assert not report.ok
    assert report.exit_code == 1
    assert (report.first_divergence.module if report.first_divergence else "") == fault.module


@pytest.mark.sweep
def test_a_fault_is_caught_on_a_given_checkpoint_too(plant: Plant, sides: Sides, qwen3_moe_checkpoint: Path) -> None:
    fault = FAULTS["gate_and_up_swapped"]

    good = run_parity(plant("given_good", {}), sides=sides, checkpoint=qwen3_moe_checkpoint)
    bad = run_parity(plant("given_bad", fault.edits), sides=sides, checkpoint=qwen3_moe_checkpoint)

    assert good.ok, _show(good)
    assert bad.level("roundtrip").status == "fail"


@pytest.mark.sweep
def test_a_toy_config_in_the_directory_is_what_is_built(plant: Plant, sides: Sides, tmp_path: Path) -> None:
    path = plant("with_toy_config", {})
    toy = toy_config(AutoConfig.for_model("qwen3_moe", mlp_only_layers=[1]).to_dict()) | {"num_local_experts": 6}
    (path / "toy_config.json").write_text(json.dumps(toy), encoding="utf-8")

    report = run_parity(path, sides=sides, work_dir=tmp_path)

    assert report.ok, _show(report)
    state = load_file(tmp_path / "state.safetensors")
    assert state["model.layers.0.mlp.experts.down_proj"].shape[0] == 6
    assert "model.layers.1.mlp.gate_proj.weight" in state


def test_a_copy_that_registers_nothing_new_is_not_mistaken_for_veomnis_own(plant: Plant, sides: Sides) -> None:
    """Comparing VeOmni's own model under the plugin's name would pass whatever the plugin contains."""
    wrong = {
        "__init__.py": [
            ('MODELING_REGISTRY["qwen3_moe"] = register', 'if 0: MODELING_REGISTRY["qwen3_moe"] = register')
        ]
    }
    report = run_parity(plant("registers_nothing", wrong), sides=sides)

    assert report.level("import").status == "fail"
    assert "'qwen3_moe' is registered by " in report.level("import").reason


def _show(report: ParityReport) -> str:
    return "\n".join(f"{level.level}: {level.status} {level.reason}" for level in report.levels)
