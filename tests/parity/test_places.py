"""The own line that a failure comes from: of converters, hooks, modules, constructors, and ways of calling."""

import pytest

from omni_kit.parity import DEFAULT_LEVELS, ParityReport, run_parity
from omni_kit.parity.processes.workers import Sides
from tests.conftest import sampled

from .conftest import CONVERTER, MODELING, Edits, Plant
from .test_planted_faults import FAULTS

REGISTRY, PLAN = "__init__.py", "parallel_plan.py"
# What is replaced, the level that fails first, and the file and a part of the line that it names.
PLACES: dict[str, tuple[Edits, str, str, str]] = {
    "a converter joins in the wrong order": (
        FAULTS["gate_and_up_swapped"].edits, "roundtrip", CONVERTER, '.experts.gate_up_proj"',
    ),
    "a converter takes no key": (FAULTS["converter_matches_nothing"].edits, "roundtrip", CONVERTER, "return "),
    "a converter makes another shape": (
        FAULTS["down_transposed"].edits, "roundtrip", CONVERTER, '.experts.down_proj", stacked.mT)',
    ),
    "a converter raises": (
        {CONVERTER: [("torch.cat([gate, up], dim=1)", "torch.cat([gate, up[:, :, :1]], dim=1)")]},
        "roundtrip", CONVERTER, "torch.cat([gate, up[:, :, :1]], dim=1)",
    ),
    "a parameter has another name": (FAULTS["a_parameter_is_renamed"].edits, "keys", MODELING, "self.down = "),
    "a module computes something else": (FAULTS["query_norm_dropped"].edits, "forward", MODELING, "def forward"),
    "a gradient is cut": (FAULTS["router_detached"].edits, "backward", MODELING, "def forward"),
    "a mask is dropped": (FAULTS["padding_mask_ignored"].edits, "forward", MODELING, "def forward"),
    "the package cannot be imported": (FAULTS["import_raises"].edits, "import", REGISTRY, "1 / 0"),
    "a cache is not filled": (
        {MODELING: [("        if past_key_values is not None:\n            key_states, value_states",
                     "        if False:\n            key_states, value_states")]},
        "scenarios", MODELING, "def forward",
    ),
    "a forward raises in one way of calling": (
        {MODELING: [("        hidden_states = outputs.last_hidden_state\n",
                     "        hidden_states = outputs.last_hidden_state\n        if logits_to_keep == 1:\n"
                     "            raise ValueError('no slices')\n")]},
        "scenarios", MODELING, "raise ValueError('no slices')",
    ),
    "a plan names no parameter": (
        {PLAN: [("mlp.experts.down_proj", "mlp.expert.down_proj")]}, "hooks", PLAN, "return ",
    ),
    "a hook raises": (
        {PLAN: [("    return ", "    [][1]\n    return ")]}, "hooks", PLAN, "[][1]",
    ),
    "an attribute is wrong": (
        {MODELING: [('_no_split_modules = ["Qwen3MoeDecoderLayer"]', "_no_split_modules = []")]},
        "hooks", MODELING, "_no_split_modules = []",
    ),
}  # fmt: skip

# One of each kind of place; the others go the same ways.
QUICK = (
    "a converter raises", "a module computes something else", "a gradient is cut", "a hook raises",
)  # fmt: skip


def test_levels_that_pass_name_no_place(plant: Plant, sides: Sides) -> None:
    report = run_parity(plant("placed_without_fault", {}), [*DEFAULT_LEVELS, "hooks", "modules"], sides=sides)
    assert report.ok
    assert {level.place for level in report.levels} == {""}


@pytest.mark.parametrize("fault", sampled(PLACES, *QUICK))
def test_a_failure_names_the_own_line(fault: str, plant: Plant, sides: Sides) -> None:
    edits, level, file, text = PLACES[fault]
    path = plant(f"placed_{list(PLACES).index(fault)}", edits)
    # Where nobody names the scenarios, fewer of them are run.
    found = run_parity(path, None if level == "scenarios" else [level], sides=sides).level(level)
    assert found.status == "fail", found.reason
    named, _, line = found.place.rpartition(":")
    assert named == file, found.reason
    code = (path / file).read_text(encoding="utf-8").splitlines()[int(line) - 1 :]
    assert any(text in one for one in code[: 6 if text == "def forward" else 1]), f"{found.place}: {code[0]}"
    assert found.place in found.reason


def test_a_module_of_a_patch_names_the_patch(plant: Plant, sides: Sides) -> None:
    report: ParityReport = run_parity(
        plant("placed_patch", FAULTS["one_expert_scaled"].edits), ["forward"], sides=sides
    )
    assert "(patch class_replacement: Qwen3MoeExperts)" in report.level("forward").reason
