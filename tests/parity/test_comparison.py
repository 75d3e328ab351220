"""The comparison of tensors: what it must notice, and what it must not mind."""

import math
from typing import Any, cast

import pytest
import torch

from omni_kit.parity.compare.comparison import Comparison, NothingToCompare, compare_shapes, listed
from omni_kit.parity.compare.precision import total_loss
from omni_kit.parity.compare.scale import scale
from omni_kit.parity.compare.tensors import (
    FLOAT32_TOLERANCE,
    compare_closely,
    compare_exactly,
    compare_up_to_rounding,
    related,
    without_lone_zeros,
)
from omni_kit.parity.levels.level import LevelVerdict
from omni_kit.parity.levels.scenarios import Scenarios
from omni_kit.parity.processes.outcomes import ScenarioOutcome
from omni_kit.parity.report.report import Worst
from omni_kit.toys.reach import unexercised
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import shuffled_ramp

UNEVEN = torch.tensor([1.0, -0.5, 0.25, -1.0])
EXPERTS = shuffled_ramp("experts", (4, 6, 5))


def test_equal_tensors_are_equal() -> None:
    found = compare_exactly({"a": EXPERTS}, {"a": EXPERTS.clone()})

    assert found.ok
    assert (found.max_abs, found.max_rel, found.compared) == (0.0, 0.0, 1)
    assert found.reason("tensor") == ""


def test_one_changed_element_is_enough() -> None:
    changed = EXPERTS.clone()
    changed[2, 3, 1] = torch.nextafter(changed[2, 3, 1], torch.tensor(9.0))

    found = compare_exactly({"a": EXPERTS}, {"a": changed})

    assert not found.ok
    assert found.worst[0].name == "a"
    assert 0 < found.worst[0].max_abs < 1e-6


def test_names_on_one_side_only_are_listed_on_their_side() -> None:
    found = compare_exactly({"a": EXPERTS, "b": EXPERTS}, {"a": EXPERTS, "c": EXPERTS})

    assert found.missing == ["b"]
    assert found.unexpected == ["c"]
    assert found.reason("tensor") == "1 tensor missing: b; 1 tensor that the reference does not have: c"


def test_nothing_to_compare_is_not_equality() -> None:
    found = compare_exactly({}, {})

    assert not found.ok
    assert found.reason("tensor") == "no tensor to compare"


@pytest.mark.parametrize("candidate", [EXPERTS.mT, EXPERTS.double()], ids=["shape", "dtype"])
def test_another_shape_or_dtype_differs_without_bound(candidate: torch.Tensor) -> None:
    found = compare_exactly({"a": EXPERTS}, {"a": candidate})

    assert found.max_rel == math.inf
    assert "instead of" in found.worst[0].why


def test_shapes_are_compared_by_name() -> None:
    found = compare_shapes({"a": [4, 6, 5], "b": [3]}, {"a": [4, 5, 6], "b": [3]})

    assert found.reason("tensor") == "1 of 2 tensors differ: a ([4, 5, 6] instead of [4, 6, 5])"
    assert compare_shapes({"a": [4]}, {"a": [4]}).ok


def closely(reference: Tensors, candidate: Tensors, nudged: Tensors | None = None) -> Comparison:
    return compare_closely(reference, candidate, reference if nudged is None else nudged)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_never_right(value: float) -> None:
    fine, odd = UNEVEN, torch.tensor([1.0, value, 1.0, 1.0])

    assert not closely({"a": fine}, {"a": odd}).ok
    assert not compare_exactly({"a": torch.tensor([math.nan])}, {"a": torch.tensor([0.0])}).ok
    for candidate in (fine, odd):
        with pytest.raises(NothingToCompare, match=r"upstream's own a is not finite"):
            closely({"a": odd}, {"a": candidate})


def test_rounding_is_within_tolerance_and_a_real_difference_is_not() -> None:
    reference = torch.linspace(-3.0, 3.0, 50)
    rounded = reference * (1 + 2 * torch.finfo(torch.float32).eps)
    scaled = reference * 1.0001

    assert closely({"a": reference}, {"a": rounded}).ok
    assert not closely({"a": reference}, {"a": scaled}).ok


def test_a_model_that_magnifies_rounding_is_allowed_as_much_as_it_magnifies() -> None:
    reference = {"steady": UNEVEN, "touchy": UNEVEN}
    nudged = {"steady": UNEVEN, "touchy": UNEVEN * (1 + 1e-5)}
    off = {"steady": UNEVEN * (1 + 1e-4), "touchy": UNEVEN * (1 + 1e-4)}

    found = closely(reference, off, nudged)

    assert [worst.name for worst in found.worst] == ["steady"]
    assert found.tolerance == FLOAT32_TOLERANCE  # the figure is that of the wrong tensor, and so is its tolerance


def test_of_several_nudges_the_largest_response_of_each_tensor_counts() -> None:
    reference = {"first": UNEVEN, "second": UNEVEN}
    nudges = [{**reference, name: UNEVEN * (1 + 1e-5)} for name in reference]
    off = dict.fromkeys(reference, UNEVEN * (1 + 1e-4))

    assert not compare_closely(reference, off, nudges[0]).ok
    assert compare_closely(reference, off, *nudges).ok
    assert not compare_closely(reference, dict.fromkeys(reference, UNEVEN * 1.001), *nudges).ok


@pytest.mark.parametrize(
    ("off", "asked", "right"), [(0.0, 0, True), (1e-4, 1, True), (1e-3, 1, False), (0.5, 0, False)]
)
def test_rounding_is_measured_again_where_it_may_be_what_differs(off: float, asked: int, right: bool) -> None:
    reference, calls = {"one": UNEVEN}, []

    def again() -> list[Tensors]:
        calls.append(off)
        return [{"one": UNEVEN * (1 + 1e-5)}]

    found = compare_up_to_rounding(reference, {"one": UNEVEN * (1 + off)}, reference, again)
    assert (len(calls), found.ok) == (asked, right)


@pytest.mark.parametrize(("off", "updates", "right"), [(3e-5, 1, False), (3e-5, 3, True), (1e-4, 3, False)])
def test_each_update_rounds(off: float, updates: int, right: bool) -> None:
    reference = {"moved": UNEVEN}
    assert compare_closely(reference, {"moved": UNEVEN * (1 + off)}, reference, updates=updates).ok is right


def test_what_is_beyond_the_magnified_rounding_still_fails() -> None:
    reference, nudged = {"touchy": UNEVEN}, {"touchy": UNEVEN * (1 + 1e-5)}

    assert not closely(reference, {"touchy": UNEVEN * 1.001}, nudged).ok


def test_a_nudge_that_changes_everything_does_not_excuse_everything() -> None:
    reference, nudged = {"flipped": UNEVEN}, {"flipped": UNEVEN * 2}

    assert not closely(reference, {"flipped": UNEVEN * 1.01}, nudged).ok


def jumping(*lengths: float) -> list[Tensors]:
    """Responses of a tensor of ones to several nudges."""
    return [{"rounded inside": UNEVEN * (1 + length)} for length in lengths]


def test_a_model_that_jumps_is_allowed_what_most_nudges_move_it() -> None:
    reference, far = {"rounded inside": UNEVEN}, {"rounded inside": UNEVEN * 1.005}
    assert compare_closely(reference, far, *jumping(3e-3, 3e-3, 1e-6, 4e-3)).ok
    assert not compare_closely(reference, far, *jumping(1e-3, 1e-3, 1e-6, 4e-3)).ok, "farther than most nudges"
    assert not compare_closely(reference, far, *jumping(1e-6, 1e-6, 1e-6, 4e-3)).ok, "one nudge in four jumps"
    assert not compare_closely(reference, far, *jumping(3e-3)).ok, "one nudge says nothing about most"


def test_what_most_nudges_move_far_is_no_rounding() -> None:
    """A model that decides otherwise at each nudge has no result to compare with."""
    reference, off = {"rounded inside": UNEVEN}, {"rounded inside": UNEVEN * 1.01}
    assert not compare_closely(reference, off, *jumping(0.3, 0.3, 0.3)).ok
    assert not compare_closely(reference, off, *jumping(math.nan, 0.3, 0.3)).ok


def test_what_rounding_may_have_moved_as_far_proves_nothing_and_what_moved_farther_is_wrong() -> None:
    reference = {"touchy": UNEVEN, "steady": UNEVEN}
    nudged = {"touchy": UNEVEN * 1.01, "steady": UNEVEN}

    touched = closely(reference, {"touchy": UNEVEN * 1.02, "steady": UNEVEN}, nudged)
    far = closely(reference, {"touchy": UNEVEN * 2, "steady": UNEVEN}, nudged)
    both = closely(reference, {"touchy": UNEVEN * 1.02, "steady": UNEVEN * 1.02}, nudged)

    assert touched.proves_nothing
    assert not any(one.proves_nothing for one in (far, both, closely(reference, reference, nudged)))
    touched.absorb(far)
    assert not touched.proves_nothing


def test_the_scale_is_the_tensors_own_so_that_a_small_one_is_not_hidden_by_a_large_one() -> None:
    reference = {"large": UNEVEN * 100, "small": UNEVEN * 0.5}
    candidate = {"large": UNEVEN * 100, "small": UNEVEN * 0.5001}

    found = closely(reference, candidate)

    assert [worst.name for worst in found.worst] == ["small"]
    assert found.worst[0].max_rel == pytest.approx(2e-4, rel=1e-2)
    assert found.max_rel == found.worst[0].max_rel
    assert found.tolerance == FLOAT32_TOLERANCE


def test_rounding_of_what_is_zero_in_exact_arithmetic_is_not_a_difference() -> None:
    reference = {"weight": UNEVEN[:3], "key.bias": torch.tensor([1e-9, -2e-9, 0.0])}
    candidate = {"weight": UNEVEN[:3], "key.bias": torch.tensor([-3e-9, 1e-9, 2e-9])}

    assert closely(reference, candidate).ok


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_never_passes(value: float) -> None:
    found = closely({"a": UNEVEN[:2]}, {"a": torch.tensor([1.0, value])})

    assert found.worst[0].why == "not finite"
    assert found.max_rel == math.inf


def test_the_worst_comes_first() -> None:
    reference = {"a": UNEVEN[:2], "b": UNEVEN[:2]}
    candidate = {"a": UNEVEN[:2] * 1.01, "b": UNEVEN[:2] * 1.1}

    assert [worst.name for worst in closely(reference, candidate).worst] == ["b", "a"]


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (torch.cat(EXPERTS.chunk(2, dim=1)[::-1], dim=1), "gate and up are swapped"),
        (torch.stack(EXPERTS.chunk(2, dim=1), dim=2).flatten(1, 2), "gate and up are interleaved"),
        (EXPERTS.mT.reshape(EXPERTS.shape), "wrong order"),
        (EXPERTS.flip(0), "wrong order"),
        (torch.randn(EXPERTS.shape, generator=torch.Generator().manual_seed(1)), "never loaded"),
        (torch.zeros(EXPERTS.shape), "never loaded"),
        (torch.cat([EXPERTS[:3], EXPERTS[:1]]), "some of the values are wrong"),
    ],
    ids=["swapped", "interleaved", "viewed", "reversed", "random", "zeros", "one expert twice"],
)
def test_wrong_values_are_explained(candidate: torch.Tensor, words: str) -> None:
    assert words in related(EXPERTS, candidate)


def test_a_gradient_of_zeros_is_no_gradient_but_any_other_is_one() -> None:
    zeros, ones = torch.zeros(2), UNEVEN[:2]

    assert without_lone_zeros({"a": zeros, "b": ones}, {}) == {"b": ones}
    assert without_lone_zeros({"a": zeros}, {"a": ones}) == {"a": zeros}


def test_what_no_gradient_reaches_is_named_down_to_the_expert() -> None:
    stacked = torch.ones(3, 2, 2)
    stacked[1] = 0
    gradients = {"experts": stacked, "dead": torch.zeros(2), "used": UNEVEN[:2]}

    assert unexercised(["experts", "dead", "used", "detached"], gradients) == ["dead", "detached", "experts[1]"]


def test_long_lists_of_names_are_cut_and_counted() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcdef")) == "a, b, c, d and 2 more"


def test_the_figure_of_several_groups_is_that_of_the_wrong_tensor() -> None:
    """A tensor that magnifies rounding may be further off than a wrong one, and is not what failed."""
    found = Comparison(max_rel=1e-4, compared=1, tolerance=1e-3)
    found.absorb(Comparison(max_rel=5e-5, compared=1, tolerance=1e-5, worst=[Worst("wrong", 1.0, 5e-5)]))
    found.absorb(Comparison(max_rel=2e-4, compared=1, tolerance=1e-3))
    assert (found.max_rel, found.tolerance) == (5e-5, 1e-5)


def test_a_level_that_fails_shows_no_figure_that_is_within_its_tolerance() -> None:
    near = Comparison(max_rel=1e-6, compared=1, tolerance=1e-5)
    assert LevelVerdict(near, "resuming differs", 1e-5).result("steps").max_rel is None
    assert LevelVerdict(near, "", 1e-5, "three steps").result("steps").max_rel == 1e-6
    far = Comparison(max_rel=1e-3, compared=1, worst=[Worst("wrong", 1.0, 1e-3)])
    assert LevelVerdict(far, "it differs", 1e-5).result("steps").max_rel == 1e-3


def test_what_was_not_tested_is_never_a_pass() -> None:
    untested = "loading the adapter: peft is not installed: pip install peft"
    found = LevelVerdict(Comparison(), "", said="4 steps", untested=untested).result("train")
    assert (found.status, found.reason, found.applicable) == ("skip", f"not tested: {untested}", True)
    assert LevelVerdict(Comparison(), "wrong", untested=untested).result("train").status == "fail"


def test_one_float32_step_is_equal_where_it_is_allowed_and_a_larger_one_is_not() -> None:
    steps, next_one = torch.tensor([0.731, 0.5]), torch.tensor([0.731, 0.5]).nextafter(torch.tensor(2.0))
    assert not compare_exactly({"sigmas": steps}, {"sigmas": next_one}).ok
    assert compare_exactly({"sigmas": steps}, {"sigmas": next_one}, steps=2).ok
    assert not compare_exactly({"sigmas": steps}, {"sigmas": steps + 1e-6}, steps=2).ok


@pytest.mark.parametrize(
    "empty",
    [
        {"logits": torch.zeros(4), "loss": torch.tensor(5.8)},
        {"logits": UNEVEN * 1e-40},
        {"logits": torch.full((2, 3), 0.7), "loss": torch.tensor(5.8)},
        {"logits": torch.full((4,), torch.finfo(torch.float32).min)},
        {"loss": torch.tensor(0.0)},
    ],
    ids=["zero", "denormal", "constant", "nothing but marks", "a loss of zero"],
)
def test_outputs_that_vanish_upstream_are_never_a_pass(empty: Tensors) -> None:
    with pytest.raises(NothingToCompare, match=r"upstream's own lo.* so the toy tests nothing"):
        closely(empty, empty)
    with pytest.raises(NothingToCompare, match="so the toy tests nothing"):
        total_loss("outputs", empty, empty, empty, "bfloat16")


def test_one_tensor_that_tells_something_is_enough() -> None:
    assert closely({"dead": torch.zeros(4), "used": UNEVEN}, {"dead": torch.zeros(4), "used": UNEVEN}).ok
    assert closely({"loss": torch.tensor(5.8)}, {"loss": torch.tensor(5.8)}).ok
    assert closely({"ids": torch.zeros(4, dtype=torch.long)}, {"ids": torch.zeros(4, dtype=torch.long)}).ok


@pytest.mark.parametrize("mark", [torch.finfo(torch.float32).min, -1e9, torch.finfo(torch.float16).min])
def test_a_mark_on_tokens_that_must_not_be_chosen_hides_no_difference(mark: float) -> None:
    logits = shuffled_ramp("logits", (5, 8))
    logits[:, 2:4] = mark
    off, unmarked = logits.clone(), logits.clone()
    off[0, 0] += 0.01
    unmarked[:, 3] = 0.5

    assert closely({"logits": logits}, {"logits": logits.clone()}).ok
    assert closely({"logits": logits}, {"logits": off}).max_rel == pytest.approx(0.01, rel=0.1)
    assert not closely({"logits": logits}, {"logits": unmarked}).ok
    exact, low = {"logits": logits}, {"logits": logits.to(torch.bfloat16)}
    assert total_loss("logits", exact, low, low, "bfloat16").reference > 1e-4
    assert total_loss("logits", exact, low, {"logits": off}, "bfloat16").excess > 1


def test_large_numbers_that_are_the_models_own_keep_their_scale() -> None:
    assert scale(torch.tensor([3e5, 2e5, 1.0])) == 3e5
    assert scale(torch.tensor([1e6, 1.0, 2.0])) == 1e6, "occurs once"
    assert scale(torch.tensor([1e6, 1e6, 0.0])) == 1e6, "nothing else that would be hidden"
    assert scale(torch.tensor([1e6, -1e6, 2.0])) == 2.0


class Vanishing:
    """A case in which upstream's outputs vanish in every scenario, or in one of two."""

    def __init__(self, **answers: torch.Tensor) -> None:
        self.thorough, self.pair = False, self
        self.answers, self.given, self.fields = answers, "checkpoint", ()

    def called(self) -> list[ScenarioOutcome]:
        return [ScenarioOutcome(name, name, "", "", "", "") for name in self.answers]

    def answers_of(self, place: str, folder: str) -> Tensors:
        return {"logits": self.answers[folder]}


def test_scenarios_that_compare_nothing_are_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omni_kit.parity.levels.scenarios.beginnings", lambda case: [])
    with pytest.raises(NothingToCompare, match="no scenario could be compared; padded: upstream's own logits vanishes"):
        Scenarios().judge(cast(Any, Vanishing(padded=torch.zeros(4))))
    found = Scenarios().judge(cast(Any, Vanishing(padded=torch.zeros(4), packed=UNEVEN)))
    assert [one.status for one in found.scenarios] == ["refused", "pass"]
    assert not found.reason
