"""The level of the kernel slots, on VeOmni's own models and on copies with faults that plain code does not show."""

from pathlib import Path

import pytest

from omni_kit.parity import LevelResult, ParityReport, run_parity
from omni_kit.parity.processes.workers import Sides

from .conftest import MODELING, Plant

GUARD = "if veomni_rms_norm.use_non_eager_impl:"
CALL = "return veomni_rms_norm(hidden_states, self.weight, self.variance_epsilon)"
SLOT = 'veomni_rms_norm = OpSlot("rms_norm", "standard")'
SCALING = "scaling=self.scaling,"


def line_of(model: Path, text: str) -> str:
    """file:line of the first line of the modeling that holds a text."""
    lines = (model / MODELING).read_text(encoding="utf-8").splitlines()
    return f"{MODELING.rpartition('/')[2]}:{next(i for i, line in enumerate(lines, 1) if text in line)}"


def compare(path: Path, sides: Sides, *levels: str) -> ParityReport:
    return run_parity(path, levels or ("backward", "opslots"), sides=sides)


def passing(report: ParityReport) -> list[str]:
    return [level.level for level in report.levels if level.status == "pass"]


def slots_of(report: ParityReport) -> LevelResult:
    return report.level("opslots")


@pytest.mark.sweep
def test_every_slot_of_a_real_model_is_called_and_changes_nothing(veomni_models: Path, sides: Sides) -> None:
    report = compare(veomni_models / "qwen3_moe", sides)

    found = slots_of(report)
    assert found.status == "pass"
    assert found.reason.startswith("6 slots, ")  # norm, rotary, experts, loss, balance, attention
    assert found.max_rel is not None
    assert 0 < found.max_rel < 1e-5  # a reference that is another implementation does not agree to the last bit


@pytest.mark.sweep
def test_a_slot_of_classes_that_were_not_built_is_said(veomni_models: Path, sides: Sides) -> None:
    said = [note for note in compare(veomni_models / "qwen3", sides).notes if note.startswith("opslots")]

    assert len(said) == 1
    assert "veomni_seq_cls_loss" in said[0]
    assert "only Qwen3ForSequenceClassification would call it" in said[0]


@pytest.mark.sweep
def test_slots_that_hold_classes_and_stored_kernels_are_counted(veomni_models: Path, sides: Sides) -> None:
    """Its gated norm is made of the slot, and its convolution is kept on the module when that is made."""
    found = slots_of(compare(veomni_models / "qwen3_5", sides))

    assert found.status == "pass"
    assert found.reason.startswith("6 slots, ")


def test_a_slot_that_is_declared_and_never_called_is_named_with_its_line(plant: Plant, sides: Sides) -> None:
    model = plant("slot_unused", {MODELING: [(GUARD, "if False:")]})

    report = compare(model, sides)

    assert passing(report) == ["backward"]
    assert "veomni_rms_norm" in slots_of(report).reason
    assert "declared and never called" in slots_of(report).reason
    assert line_of(model, SLOT) in slots_of(report).reason
    assert report.exit_code == 1


def test_a_slot_with_a_wrong_argument_fails_although_the_plain_code_is_right(plant: Plant, sides: Sides) -> None:
    wrong = CALL.replace("self.variance_epsilon", "1e-2")
    report = compare(plant("slot_argument", {MODELING: [(CALL, wrong)]}), sides)

    assert passing(report) == ["backward"]
    assert "veomni_rms_norm" in slots_of(report).reason
    assert "logits" in slots_of(report).reason
    assert "0.01" in slots_of(report).reason
    assert "veomni_moe_experts_forward" not in slots_of(report).reason


def test_a_constant_that_equals_the_toys_value_fails_with_another_config(plant: Plant, sides: Sides) -> None:
    """Only in the call of the kernel; with the toy's own epsilon it is the right number."""
    wrong = CALL.replace("self.variance_epsilon", "1e-6")
    report = compare(plant("slot_constant", {MODELING: [(CALL, wrong)]}), sides)

    assert passing(report) == ["backward"]
    assert slots_of(report).reason.startswith("no number at its default: veomni_rms_norm")


def test_what_is_wrong_without_a_kernel_is_reported_once(plant: Plant, sides: Sides) -> None:
    wrong = ("return self.weight * hidden_states", "return self.weight + hidden_states")
    raises = ("return self.weight * hidden_states", "return self.no_weight * hidden_states")

    found = slots_of(compare(plant("plainly_wrong", {MODELING: [wrong]}), sides))
    report = compare(plant("plainly_raising", {MODELING: [raises]}), sides, "forward", "backward", "opslots")

    assert (found.status, found.reason.count("differ")) == ("fail", 1)
    assert found.reason.startswith("without a kernel, ")
    assert [level.status for level in report.levels] == ["fail", "skip", "skip"]
    assert [level.reason.count("'no_weight'") for level in report.levels] == [1, 0, 0]
    assert slots_of(report).reason == "not run, because of the error in forward"


def test_an_argument_that_no_kernel_takes_is_the_integrations_fault(plant: Plant, sides: Sides) -> None:
    strange = CALL.replace("self.variance_epsilon", "self.variance_epsilon, residual=None")
    report = compare(plant("slot_strange", {MODELING: [(CALL, strange)]}), sides)

    assert slots_of(report).status == "fail"
    assert "unexpected keyword argument 'residual'" in slots_of(report).reason


def test_a_slot_without_a_reference_is_an_error_and_no_pass(plant: Plant, sides: Sides) -> None:
    unknown = f'{SLOT}\nveomni_novelty = OpSlot("novelty", "standard")'
    report = compare(plant("slot_unknown", {MODELING: [(SLOT, unknown)]}), sides)

    assert slots_of(report).status == "error"
    assert "veomni_novelty (novelty:standard" in slots_of(report).reason
    assert report.exit_code == 3


def test_a_causal_flag_that_a_cpu_ignores_is_read_off_the_calls(plant: Plant, sides: Sides) -> None:
    report = compare(
        plant("not_causal", {MODELING: [(SCALING, f"{SCALING}\n            is_causal=False,")]}), sides, "forward"
    )

    assert report.level("forward").max_rel is None  # no figure failed
    assert report.level("forward").reason == (
        "model.layers.0.self_attn attends with is_causal=False instead of True, and 1 more"
    )


def test_a_causal_flag_reaches_the_slot_of_attention(plant: Plant, sides: Sides) -> None:
    report = compare(
        plant("not_causal_slot", {MODELING: [(SCALING, f"{SCALING}\n            is_causal=False,")]}), sides
    )

    assert "attention (attention:packed" in slots_of(report).reason
    assert "veomni_rms_norm" not in slots_of(report).reason


def test_a_window_that_only_kernels_look_at_is_read_off_the_calls(plant: Plant, sides: Sides) -> None:
    window = "sliding_window=self.sliding_window,"
    report = compare(plant("other_window", {MODELING: [(window, "sliding_window=7,")]}), sides, "forward")

    assert "attends with sliding_window=7 instead of None" in report.level("forward").reason


def test_an_argument_of_the_loss_that_a_trainer_passes_and_the_model_loses(plant: Plant, sides: Sides) -> None:
    handed = "                    weights=self.lm_head.weight,\n                    **kwargs,\n"
    fewer = handed.replace("**kwargs", "**{name: one for name, one in kwargs.items() if name != 'temperature'}")
    report = compare(plant("loss_argument", {MODELING: [(handed, fewer)]}), sides)

    assert passing(report) == ["backward"]
    assert "temperature does not reach veomni_causal_lm_loss" in slots_of(report).reason
    assert "num_items_in_batch" not in slots_of(report).reason


def test_replayed_experts_get_the_routers_weights(plant: Plant, sides: Sides) -> None:
    """As VeOmni defines a replay: what the native forward gives if topk picks those experts."""
    gathered = "routing_weights = routing_scores.gather(1, selected_experts)"
    report = compare(plant("replay_weights", {MODELING: [(gathered, "pass")]}), sides)

    assert passing(report) == ["backward"]
    assert "router replay: with another choice of experts the loss is" in slots_of(report).reason
