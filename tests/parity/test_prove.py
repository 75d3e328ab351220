"""Planted faults: found where they fit, noticed, located, and gone afterwards."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import distributed, nn
from transformers import AutoConfig

from omni_kit.cli import main
from omni_kit.parity import run_parity
from omni_kit.parity.faults import FAULTS
from omni_kit.parity.faults.calling import CALL_FAULTS
from omni_kit.parity.faults.fault_injection import Place, find_places, planted
from omni_kit.parity.faults.media import MEDIA_FAULTS
from omni_kit.parity.faults.processes import PROCESS_FAULTS, process_fault
from omni_kit.parity.processes.workers import Sides
from omni_kit.parity.report.report import InjectionResult, LevelResult, ParityReport, Proof, proof_of
from omni_kit.resources import resource_dir
from omni_kit.toys.configs.language import toy_config

from .conftest import MODELING, Plant

OF_MEDIA = MEDIA_FAULTS.keys() - {"packed samples see each other"}


class Attention(nn.Module):
    """As attention is written: scores, mask, softmax."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.scaling = 0.5

    def forward(self, hidden_states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        attn_weights = hidden_states @ self.k_proj(hidden_states).mT * self.scaling
        if attention_mask is not None:
            attn_weights = attn_weights + attention_mask
        else:
            attn_weights = attn_weights.clamp(min=0)
        answer: torch.Tensor = nn.functional.softmax(attn_weights, dim=-1) @ self.v_proj(hidden_states)
        return answer


class Modulated(nn.Module):
    """As a block of a diffusion transformer begins, with a method and a helper of the file."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(2, width))
        self.limit = 100.0

    def shifted(self, x: torch.Tensor) -> torch.Tensor:
        shift, scale = self.table[0], self.table[1]
        return x * (1 + scale) + shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return limited(self.shifted(x), self.limit)


def limited(x: torch.Tensor, limit: float) -> torch.Tensor:
    return x.clamp(min=-limit, max=limit)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.last = Attention(), Attention(), Modulated()

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        mask = torch.triu(torch.full((5, 5), -1e9), diagonal=1)
        hidden_states = hidden_states + self.first(hidden_states, attention_mask=mask)
        hidden_states = hidden_states + self.second(hidden_states, attention_mask=mask)
        return torch.as_tensor(self.last(hidden_states))


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def run(model: Model) -> Callable[[], torch.Tensor]:
    batch = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))
    return lambda: torch.as_tensor(model(batch))


def places(model: Model, run: Callable[[], torch.Tensor]) -> dict[str, Place]:
    return {place.fault.name: place for place in find_places(model, FAULTS, run)}


def test_a_fault_is_planted_where_its_code_or_parts_are(model: Model, run: Callable[[], torch.Tensor]) -> None:
    found = places(model, run)

    assert {"mask-dropped", "mask-of-next-token", "scale-dropped", "softmax-twice", "key-and-value-swapped"} <= set(
        found
    )
    assert found["scale-and-shift-swapped"].module == "last"
    assert "rotary-pairs-neighbours" not in found
    assert "test_prove.py" in found["mask-dropped"].what


def test_code_that_does_not_run_is_no_place(model: Model, run: Callable[[], torch.Tensor]) -> None:
    clamps = [place for place in find_places(model, FAULTS, run) if place.fault.name == "clamp-dropped"]

    assert [place.module for place in clamps] == ["last"]


def test_modules_of_one_class_take_turns(model: Model, run: Callable[[], torch.Tensor]) -> None:
    turns = {place.module for place in find_places(model, FAULTS, run)}

    assert {"first", "second"} <= turns


def test_every_planted_fault_changes_the_answer_and_is_gone_afterwards(
    model: Model, run: Callable[[], torch.Tensor]
) -> None:
    right = run()
    code = Attention.forward.__code__
    for place in find_places(model, FAULTS, run):
        with planted(model, place) as outcome:
            wrong = run()
        changes = place.fault.name not in ("clamp-dropped", "weights-cut-off")
        assert torch.equal(wrong, right) != changes, place
        assert outcome.reached
        assert outcome.changed == (place.fault.name != "clamp-dropped")
        assert torch.equal(run(), right), place
    assert Attention.forward.__code__ is code


def test_a_fault_is_in_one_module_only(model: Model, run: Callable[[], torch.Tensor]) -> None:
    place = places(model, run)["mask-dropped"]
    answers: dict[str, list[torch.Tensor]] = {}
    for name in ("first", "second"):
        module = model.get_submodule(name)
        module.register_forward_hook(lambda m, args, out, name=name: answers.setdefault(name, []).append(out))
    run()
    with planted(model, place):
        run()

    assert [torch.equal(*answers[name]) for name in ("first", "second")] == [place.module != "first", False]


def test_a_model_is_mended_after_an_error(model: Model, run: Callable[[], torch.Tensor]) -> None:
    right = run()
    place = places(model, run)["key-and-value-swapped"]
    with pytest.raises(ZeroDivisionError), planted(model, place):
        raise ZeroDivisionError

    assert torch.equal(run(), right)


def test_there_are_kinds_enough() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names)) >= 40


WAYS = {
    "padding left", "padding right", "padding inside", "logits_to_keep 1", "logits_to_keep 3", "return_dict=False",
    "output_hidden_states", "output_attentions", "output_router_logits", "inputs_embeds", "cache", "generate",
    "evaluation", "1 token", "300 tokens", "labels ignored at the end", "a single label", "gradient checkpointing",
    "a sample alone", "packed", "padded sdpa attention", "padded flex_attention", "no attention_mask",
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("model_name", ["qwen3_moe", "olmoe"])
def test_on_the_reference_models_all_faults_are_detected_and_nine_in_ten_located(model_name: str, sides: Sides) -> None:
    path = resource_dir("reference_models") / "veomni" / model_name

    proof = run_parity(path, ["forward"], sides=sides, prove=True).prove

    assert proof is not None
    assert proof.missed == []
    assert proof.detected == proof.faults >= 40
    assert proof.located >= 0.9 * proof.faults, proof.mislocated
    kinds = {fault.kind: fault for fault in proof.planted}
    assert len(kinds) >= 30
    assert kinds["not-causal"].detected_by == ("forward",)
    assert kinds["weights-cut-off"].detected_by == ("backward",)
    assert kinds["expert-gate-and-up-swapped"].detected_by[0] == "roundtrip"
    assert all("attention_scaling" in name for name in proof.idle)
    for kind in CALL_FAULTS.keys() - OF_MEDIA:  # the ways that showed it are named, and are those that can
        assert (kinds[kind].detected_by, kinds[kind].located) == (("scenarios",), True)
        assert {re.sub(" (True|False)$", "", way) for way in kinds[kind].blamed.split(", ")} <= WAYS


def test_nothing_is_planted_in_what_is_wrong_already(plant: Plant, sides: Sides) -> None:
    edits = {MODELING: [("self.act_fn(gate) * up\n", "self.act_fn(gate) * up * 1.01\n")]}

    report = run_parity(plant("unproven", edits), ["keys"], sides=sides, prove=True)

    assert report.prove is None
    assert any(note.startswith("no fault was injected: forward already fails") for note in report.notes)


@pytest.mark.sweep
def test_a_level_that_does_not_apply_keeps_nothing_from_being_planted(veomni_models: Path, sides: Sides) -> None:
    report = run_parity(veomni_models / "llama", ["ep"], sides=sides, prove=True)

    assert report.level("ep").reason.startswith("not applicable")
    assert report.prove is not None
    assert report.prove.faults == report.prove.detected > 20
    assert report.prove.idle == []
    scalings = [fault for fault in report.prove.planted if "self.attention_scaling" in fault.name]
    assert scalings  # which are 1 unless the config has scaled positions
    assert all(fault.name.endswith(" with every field at once") for fault in scalings)


def test_faults_without_an_effect_are_listed_and_equal_code_apart() -> None:
    found = proof_of(
        [
            InjectionResult("seen", "k", "m", ("forward",), "m", located=True),
            InjectionResult("never exercised", "k", "m", idle=True),
            InjectionResult("same result", "k", "m", idle=True, equal=True),
        ]
    )

    assert (found.faults, found.detected, found.idle, found.equal) == (1, 1, ["never exercised"], ["same result"])


class Spare(nn.Module):
    """Code whose value is used, and code whose value is not."""

    def __init__(self) -> None:
        super().__init__()
        self.scaling, self.weight = 1.0, nn.Parameter(torch.ones(3))

    def forward(self, used: torch.Tensor, spare: torch.Tensor) -> torch.Tensor:
        spare = spare * self.scaling
        return used * self.scaling * self.weight


def test_noise_distinguishes_code_whose_value_is_used() -> None:
    model, batch = Spare(), torch.arange(3.0)
    found = find_places(model, FAULTS, lambda: model(batch, batch))
    right, changed = model(batch, batch), {}
    for place in (place for place in found if place.fault.name == "scale-dropped"):
        with planted(model, place, noise=True) as outcome:
            changed[place.what.rpartition(" ")[0].split()[1]] = not torch.equal(model(batch, batch), right)
        assert outcome.changed

    assert changed == {"used": True, "spare": False}


def test_a_missed_fault_is_no_success() -> None:
    levels = [LevelResult("forward", "pass")]
    missed = ParityReport("p", "m", levels, prove=Proof(2, 1, 1, ["mask-dropped in a"]))
    mislocated = ParityReport("p", "m", levels, prove=Proof(2, 2, 1, mislocated=["softmax-twice in a"]))

    assert (missed.ok, missed.exit_code) == (False, 1)
    assert (mislocated.ok, mislocated.exit_code) == (True, 0)
    assert str(InjectionResult("n", "k", "m")) == "MISSED"


@pytest.mark.sweep
def test_faults_between_processes_are_noticed(plant: Plant, sides: Sides) -> None:
    model = plant("of_two_heads", {}, "llama")  # which four processes cannot share: two show the faults
    toy = toy_config(AutoConfig.for_model("llama").to_dict())
    toy |= {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    (model / "toy_config.json").write_text(json.dumps(toy), encoding="utf-8")

    proof = run_parity(model, ["sp"], sides=sides, prove=True).prove

    assert proof is not None
    assert proof.missed == []
    between = {fault.kind: fault for fault in proof.planted if fault.module == "sp"}
    assert {"parts-joined-in-another-order", "sum-over-processes-missing"} <= set(between)
    assert all(fault.detected_by == ("sp",) for fault in between.values())


@pytest.mark.sweep
def test_the_command_prints_the_proof(veomni_models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["parity", str(veomni_models / "llama"), "--levels", "sp", "--prove", "--format", "json"])

    proof = json.loads(capsys.readouterr().out)["prove"]
    assert code == 0
    assert proof["faults"] == proof["detected"] == len(proof["planted"])
    assert proof["missed"] == []
    between = {fault["kind"]: fault for fault in proof["planted"] if fault["module"] == "sp"}
    assert {"parts-joined-in-another-order", "sum-over-processes-missing"} <= set(between)
    assert all(fault["detected_by"] == ["sp"] for fault in between.values())


def test_a_fault_between_processes_is_gone_afterwards() -> None:
    own = {
        name: getattr(distributed, name)
        for wrong in PROCESS_FAULTS.values()
        for name in wrong
        if hasattr(distributed, name)
    }
    for kind in PROCESS_FAULTS:
        with process_fault(kind):
            assert any(getattr(distributed, name) is not real for name, real in own.items())
    with process_fault(""):
        assert all(getattr(distributed, name) is real for name, real in own.items())
    assert all(getattr(distributed, name) is real for name, real in own.items())
