"""Low precision is judged by what upstream loses in it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from omni_kit.parity import ParityReport, run_parity
from omni_kit.parity.compare.precision import RATIO, RATIO_OF_CHAOS, Replays, module_loss, total_loss
from omni_kit.parity.compare.trace import Recording, Script, recorded
from omni_kit.parity.processes.workers import Sides
from omni_kit.toys.weights import shuffled_ramp
from tests.conftest import first

from .conftest import MODELING, Edits, Plant

EXACT = shuffled_ramp("exact", (40, 30)) * 3
ROUNDED = EXACT.to(torch.bfloat16)

TOO_LOW: dict[str, tuple[Edits, str]] = {
    "norm_in_the_low_dtype": (
        {MODELING: [("hidden_states = hidden_states.to(torch.float32)\n", "pass\n")]},
        "norm",
    ),
    "rope_in_the_low_dtype": (
        {MODELING: [("cos = emb.cos()", "cos = emb.to(x.dtype).cos()")]},
        "model.rotary_emb",
    ),
}


def test_the_same_rounding_is_no_excess() -> None:
    found = module_loss("m", [(EXACT, ROUNDED, ROUNDED)], "bfloat16")

    assert found.reference == found.candidate > 0
    assert found.excess == pytest.approx(1 / RATIO)


def test_a_second_rounding_on_the_way_is_an_excess() -> None:
    twice = (ROUNDED * 1.7).to(torch.bfloat16) / 1.7

    assert module_loss("m", [(EXACT, ROUNDED, twice)], "bfloat16").excess > 1


def test_being_closer_to_float32_than_upstream_is_fine() -> None:
    assert module_loss("m", [(EXACT, ROUNDED, EXACT)], "bfloat16").excess == 0


def test_a_rounding_where_upstream_only_copies_is_an_excess() -> None:
    assert module_loss("m", [(EXACT, EXACT, ROUNDED)], "bfloat16").excess > 1
    assert module_loss("m", [(EXACT, EXACT, EXACT)], "bfloat16").excess == 0


def test_a_few_numbers_say_less_than_many() -> None:
    off = ROUNDED.float() + (ROUNDED.float() - EXACT) * 0.5

    assert module_loss("m", [(EXACT, ROUNDED, off)], "bfloat16").excess > 1
    assert module_loss("m", [(EXACT[:4], ROUNDED[:4], off[:4])], "bfloat16").excess < 1


def test_what_is_not_finite_is_infinitely_far_off() -> None:
    broken = ROUNDED.clone()
    broken[0, 0] = torch.nan

    assert module_loss("m", [(EXACT, ROUNDED, broken)], "bfloat16").excess == torch.inf


def test_where_upstream_is_far_off_itself_a_single_sample_is_not_held_against_the_candidate() -> None:
    steady = total_loss("logits", {"a": EXACT}, {"a": ROUNDED}, {"a": EXACT * 1.02}, "bfloat16")
    chaotic = total_loss("logits", {"a": EXACT}, {"a": EXACT * 1.1}, {"a": EXACT * 1.9}, "bfloat16")

    assert steady.excess > 1
    assert chaotic.excess < 1
    assert chaotic.allowed == pytest.approx(RATIO_OF_CHAOS * 0.1, rel=1e-2)


def test_only_what_all_have_is_compared() -> None:
    found = total_loss("gradients", {"a": EXACT, "b": EXACT}, {"a": ROUNDED}, {"a": ROUNDED, "c": EXACT}, "bfloat16")

    assert found.reference == found.candidate


@pytest.mark.sweep
@pytest.mark.parametrize("model", first(1, ["qwen3_moe", "llama", "gemma3", "qwen3_omni_moe"]))
def test_veomnis_own_models_lose_what_upstream_loses(model: str, veomni_models: Path, sides: Sides) -> None:
    level = run_parity(veomni_models / model, ["dtype"], sides=sides).level("dtype")

    assert level.status == "pass", level.reason
    assert level.max_rel is not None
    assert level.max_rel < 2.0**-6
    assert "equal upstream's bit by bit" in level.reason


@pytest.mark.sweep
def test_positions_that_veomni_interpolates_in_the_low_dtype_are_found(veomni_models: Path, sides: Sides) -> None:
    level = run_parity(veomni_models / "qwen3_vl", ["dtype"], sides=sides).level("dtype")

    assert level.status == "fail"
    assert "model.visual rounds elsewhere than upstream" in level.reason
    assert "operations in bfloat16, upstream 1," in level.reason


@pytest.mark.parametrize("name", first(1, TOO_LOW))
def test_arithmetic_in_too_low_a_dtype_is_found_in_its_module(name: str, plant: Plant, sides: Sides) -> None:
    edits, module = TOO_LOW[name]

    report: ParityReport = run_parity(plant(name, edits), ["forward", "dtype"], sides=sides)

    assert report.level("forward").status == "pass"
    assert report.level("dtype").status == "fail"
    first = report.level("dtype").reason.partition(" rounds elsewhere")[0]
    assert first.startswith("bfloat16: ")
    assert first.endswith(module)


VARIANCE = "hidden_states.pow(2).mean(-1, keepdim=True)"
MOVED = {
    "weight_before_the_cast": (
        "return self.weight * hidden_states.to(input_dtype)", "return (self.weight * hidden_states).to(input_dtype)",
    ),
    "variance_in_the_low_dtype": (VARIANCE, VARIANCE.replace(".pow", ".to(input_dtype).pow")),
    "routing_weights_stay": ("router_top_value = router_top_value.to(router_logits.dtype)", "pass"),
}  # fmt: skip


@pytest.mark.parametrize("name", first(1, MOVED))
def test_a_cast_at_another_place_is_found(name: str, plant: Plant, sides: Sides) -> None:
    """Nearer to float32 or further from it: a run in bfloat16 is no longer upstream's."""
    report = run_parity(plant(name, {MODELING: [MOVED[name]]}), ["forward", "dtype"], sides=sides)

    assert report.level("forward").status == "pass"
    assert report.level("dtype").status == "fail"


SPELLED_OTHERWISE = {
    "forward_of_a_norm": (
        "hidden_states = self.post_attention_layernorm(hidden_states)",
        "hidden_states = self.post_attention_layernorm.forward(hidden_states)",
    ),
    "mean_as_a_sum": (
        "variance = hidden_states.pow(2).mean(-1, keepdim=True)",
        "variance = (hidden_states * hidden_states).sum(-1, keepdim=True) / hidden_states.shape[-1]",
    ),
    "queries_scaled_first": (
        "torch.matmul(query, key_states.transpose(2, 3)) * scaling",
        "torch.matmul(query * scaling, key_states.transpose(2, 3))",
    ),
    "forward_of_the_experts": ("self.experts(", "type(self.experts).forward(self.experts, "),
}


@pytest.mark.parametrize("name", first(1, SPELLED_OTHERWISE))
def test_a_call_that_is_spelled_otherwise_loses_no_more(name: str, plant: Plant, sides: Sides) -> None:
    """The same arithmetic without a call of the module: upstream is not put right at a place where the other is not."""
    report = run_parity(plant(name, {MODELING: [SPELLED_OTHERWISE[name]]}), ["forward", "dtype"], sides=sides)

    assert report.level("forward").status == "pass"
    assert report.level("dtype").status == "pass", report.level("dtype").reason


def test_a_weight_that_upstream_keeps_in_float32_is_missed(veomni_models: Path, sides: Sides) -> None:
    """Upstream keeps the norms of gpt_oss in float32 when the rest is float16; VeOmni's loader does not."""
    level = run_parity(veomni_models / "gpt_oss", ["dtype"], sides=sides).level("dtype")

    assert level.status == "fail"
    assert "float16: model.layers.0.input_layernorm" in level.reason
    assert "bfloat16" not in level.reason


@pytest.mark.sweep
def test_a_dtype_in_which_upstream_itself_does_not_run_proves_nothing(veomni_models: Path, sides: Sides) -> None:
    report = run_parity(veomni_models / "deepseek_v4", ["dtype"], sides=sides)

    assert report.level("dtype").status == "error"
    assert report.exit_code == 3
    assert any("upstream itself does not run in bfloat16" in note for note in report.notes)


class _Part(nn.Module):
    def forward(self, weights: torch.Tensor) -> torch.Tensor:
        return weights


class _Whole(nn.Module):
    """Its own output is its part's."""

    def __init__(self, early: bool) -> None:
        super().__init__()
        self.part, self.early = _Part(), early

    def forward(self, scores: torch.Tensor) -> Any:
        scores = scores.to(torch.bfloat16) if self.early else scores.float()
        return self.part((scores / scores.sum(-1, keepdim=True)).to(torch.bfloat16).view(40, 30))


def _recording(module: nn.Module, script: Script | None = None, counted: bool = False) -> Recording:
    with recorded(module, script, counted=counted, always=True) as recording, torch.no_grad():
        module(EXACT.abs())
    return recording


@pytest.mark.parametrize("early", [False, True])
def test_what_a_module_passes_to_its_parts_is_compared(early: bool) -> None:
    exact = _recording(_Whole(False))
    numbers = {(call.module, call.occurrence): call.number for call in exact.calls}
    reference, candidate = (_recording(_Whole(is_early), Script(exact, numbers), True) for is_early in (False, early))
    replays = Replays(exact, reference, candidate, torch.ones(1, 1))
    found = [one.wrong for one in replays.roundings("bfloat16") if one.wrong]
    assert [said.partition(" rounds elsewhere")[0] for said in found] == ["the model"] * early
