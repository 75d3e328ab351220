"""Faults that only another way of calling the model, or another config, shows; and an optimizer's steps."""

import pytest

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides

from .conftest import MODELING, Plant

# Each is invisible to `forward` and `backward`. What is replaced, by what, and the scenario that must see it.
FAULTS = {
    "logits_to_keep is ignored": (
        "hidden_states = hidden_states[:, slice_indices, :]", "pass", "logits_to_keep 1",
    ),
    "the cache is not filled": (
        "        if past_key_values is not None:\n            key_states, value_states",
        "        if False:\n            key_states, value_states", "cache",
    ),
    "the epsilon is everybody's": (
        "eps=config.rms_norm_eps)  # unlike olmo", "eps=1e-6)  # unlike olmo", "no number at its default",
    ),
    "chosen experts are never normalised": (
        "self.norm_topk_prob = config.norm_topk_prob", "self.norm_topk_prob = False", "norm_topk_prob=True",
    ),
    "experts begin twice as wide": (
        "init.normal_(module.down_proj, mean=0.0, std=std)", "init.normal_(module.down_proj, mean=0.0, std=2 * std)",
        "freshly initialised",
    ),
    "experts have one activation": (
        "self.act_fn = ACT2FN[config.hidden_act]", 'self.act_fn = ACT2FN["silu"]', "hidden_act=gelu",
    ),
    "every layer is sparse": (
        "(layer_idx not in config.mlp_only_layers) and (", "True and (", "mlp_only_layers=[0]",
    ),
    "no kernel knows of a window": (
        "            sliding_window=self.sliding_window,  # diff with Llama\n", "",
        "sliding_window=6, use_sliding_window=True",
    ),
    "a prepared sample has no router logits": (
        "            output_router_logits if output_router_logits is",
        "            False if 'cu_seq_lens_q' in kwargs else output_router_logits if output_router_logits is",
        "a sample alone, output_router_logits True",
    ),
    "attention drops in evaluation, too": (
        "dropout=0.0 if not self.training else self.attention_dropout", "dropout=self.attention_dropout", "dropout",
    ),
}  # fmt: skip
OF_NPU = MODELING.replace("gpu", "npu")
ROUTED = "routing_weights = torch.nn.functional.softmax(router_logits, dtype=torch.float, dim=-1)"


@pytest.mark.sweep
def test_the_copy_itself_passes_each_scenario(plant: Plant, sides: Sides) -> None:
    report = run_parity(plant("called_without_fault", {}), ["scenarios"], sides=sides)
    assert report.ok, report.level("scenarios").reason
    results = report.level("scenarios").scenarios
    refused = {one.name: one.reason for one in results if one.status == "refused"}
    assert {one.status for one in results} <= {"pass", "refused"}
    assert all(reason.startswith("upstream refuses it: ") for reason in refused.values())
    fields = {one.name: one for one in report.level("scenarios").fields}
    assert fields["mlp_only_layers"].tried[0] == "mlp_only_layers=[0]"
    assert fields["pad_token_id"].why == "it is the number of a token"
    assert "config fields varied, not " in report.level("scenarios").reason
    assert {one.name for one in results} >= {
        "logits_to_keep 1", "padding left", "inputs_embeds", "cache", "generate", "300 tokens",
        "gradient checkpointing", "no number at its default", "12 layers and 12 experts", "rope yarn",
        "tie_word_embeddings=True", "norm_topk_prob=True", "packed", "IS_NPU_AVAILABLE",
        "freshly initialised", "dropout",
    }  # fmt: skip
    assert all(one.compared for one in results if one.status == "pass")


@pytest.mark.sweep
def test_faults_that_one_way_of_calling_does_not_show(plant: Plant, sides: Sides) -> None:
    edits = {MODELING: [(old, new) for old, new, _ in FAULTS.values()], OF_NPU: [(ROUTED, f"{ROUTED} * 1.01")]}
    report = run_parity(plant("called_with_faults", edits), ["forward", "backward", "scenarios"], sides=sides)
    assert [report.level(name).status for name in ("forward", "backward")] == ["pass", "pass"]
    wrong = [one.name for one in report.level("scenarios").scenarios if one.status == "fail"]
    assert {scenario for _, _, scenario in FAULTS.values()} | {"IS_NPU_AVAILABLE"} <= set(wrong)
    assert not {"padding left", "inputs_embeds", "300 tokens", "rope linear", "packed"} & set(wrong)
    assert all(f"{name}: " in report.level("scenarios").reason for name in wrong)


@pytest.mark.sweep
def test_ways_alone_where_nobody_names_the_level(plant: Plant, sides: Sides) -> None:
    names = {one.name for one in run_parity(plant("called_shortly", {}), sides=sides).level("scenarios").scenarios}
    assert {"cache", "every field at once", "every choice of layers at once"} <= names
    assert "no number at its default" not in names


def test_an_optimizer_moves_it_as_upstream_is_moved(plant: Plant, sides: Sides) -> None:
    report = run_parity(plant("stepped", {}), ["steps"], sides=sides)
    assert (report.level("steps").status, report.level("steps").max_rel) == ("pass", 0.0)


def test_state_that_is_not_saved_is_missed_when_a_run_is_resumed(plant: Plant, sides: Sides) -> None:
    counting = [
        ("        self.norm_topk_prob = config.norm_topk_prob", "        self.calls = 0\n"
         "        self.norm_topk_prob = config.norm_topk_prob"),
        ("        if self.norm_topk_prob:", "        self.calls += 1\n"
         "        router_logits = router_logits * (1.0 if self.calls < 4 else 0.5)\n        if self.norm_topk_prob:"),
    ]  # fmt: skip
    report = run_parity(plant("forgets", {MODELING: counting}), ["steps"], sides=sides)
    assert report.level("steps").status == "fail"
    assert "after resuming" in report.level("steps").reason


@pytest.mark.sweep
def test_a_device_that_the_integration_refuses_by_name_is_not_failed(plant: Plant, sides: Sides) -> None:
    for name, said, status in (("refuses_npu", "no NPU version", "refused"), ("raises_on_npu", "later", "fail")):
        edits = {OF_NPU: [(ROUTED, f'raise NotImplementedError("{said}")\n        {ROUTED}')]}
        found = run_parity(plant(name, edits), ["scenarios"], sides=sides).level("scenarios")
        assert {one.name: one.status for one in found.scenarios}["IS_NPU_AVAILABLE"] == status
        assert said in {one.name: one.reason for one in found.scenarios}["IS_NPU_AVAILABLE"]
