"""Converters on trial, and the small tensors that they are tried with: compared with torch itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from omni_checkers.symbolic.tensors import NotATensor, Tiny, call
from omni_checkers.veomni.facts.model import model_facts
from omni_checkers.veomni.facts.trial import EXPERTS, WIDTH, _values, cases
from omni_kit.pysource.library import find_library
from omni_kit.upstream.transformers.configs import config_class
from omni_kit.upstream.transformers.recipes.transform import Operation, Transform


def numbered(tensor: Tiny, first: int = 0) -> torch.Tensor:
    """The same tensor in torch: each label by its number."""
    return torch.arange(first, first + len(tensor.data)).reshape(tensor.shape)


def labels(made: torch.Tensor, *sources: Tiny) -> tuple[str, ...]:
    """The labels of a torch tensor made of `numbered` sources, counted through."""
    known = [label for source in sources for label in source.data]
    return tuple(known[number] for number in made.flatten().tolist())


A, B = Tiny.named("a", (2, 3)), Tiny.named("b", (2, 3))
C = Tiny.named("c", (2, 3, 4))


class TestTensors:
    @pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
    def test_stack_as_torch_does(self, dim: int) -> None:
        made = torch.stack([numbered(A), numbered(B, 6)], dim=dim)
        assert call("stack", [[A, B], dim], {}) == Tiny(tuple(made.shape), labels(made, A, B))

    @pytest.mark.parametrize("dim", [0, 1, -1, -2])
    def test_cat_as_torch_does(self, dim: int) -> None:
        made = torch.cat([numbered(A), numbered(B, 6)], dim=dim)
        assert call("cat", [[A, B], dim], {}) == Tiny(tuple(made.shape), labels(made, A, B))

    @pytest.mark.parametrize("dims", [(0, 1), (1, 2), (-1, 0)])
    def test_transpose_as_torch_does(self, dims: tuple[int, int]) -> None:
        made = numbered(C).transpose(*dims)
        assert call("transpose", [C, *dims], {}) == Tiny(tuple(made.shape), labels(made, C))

    @pytest.mark.parametrize("order", [(2, 0, 1), (0, 2, 1), (-1, 1, 0)])
    def test_permute_as_torch_does(self, order: tuple[int, ...]) -> None:
        made = numbered(C).permute(*order)
        assert call("permute", [C, order], {}) == Tiny(tuple(made.shape), labels(made, C))

    def test_chunk_as_torch_does(self) -> None:
        for one, two in zip(call("chunk", [C, 2, 2], {}), numbered(C).chunk(2, dim=2), strict=True):
            assert one == Tiny(tuple(two.shape), labels(two, C))

    def test_select_as_torch_does(self) -> None:
        assert C.item(-1) == Tiny((3, 4), labels(numbered(C)[-1], C))

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("reshape", (4, 6)), ("reshape", ((6, -1),)), ("view", (2, 2, 6)), ("flatten", ()), ("flatten", (1,)),
            ("flatten", (0, 1)), ("unsqueeze", (1,)), ("unsqueeze", (-1,)), ("squeeze", (0,)), ("narrow", (2, 1, 2)),
        ],
    )  # fmt: skip
    def test_other_shapes_as_torch_gives_them(self, name: str, arguments: tuple[Any, ...]) -> None:
        made = getattr(numbered(C), name)(*arguments)
        assert call(name, [C, *arguments], {}) == Tiny(tuple(made.shape), labels(made, C))

    @pytest.mark.parametrize(
        ("name", "arguments"), [("split", (1, 1)), ("split", (3, 2)), ("split", ([1, 3], -1)), ("unbind", (1,))]
    )
    def test_parts_as_torch_gives_them(self, name: str, arguments: tuple[Any, ...]) -> None:
        made = getattr(numbered(C), name)(*arguments)
        assert call(name, [C, *arguments], {}) == [Tiny(tuple(part.shape), labels(part, C)) for part in made]

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda: call("stack", [[A, C]], {}),
            lambda: call("stack", [[]], {}),
            lambda: call("cat", [[A, C]], {}),
            lambda: call("cat", [[A, Tiny.named("d", (3, 4))], 0], {}),
            lambda: call("permute", [C, (0, 0, 1)], {}),
            lambda: call("transpose", [A, 0, 2], {}),
            lambda: call("getitem", [A, 2], {}),
            lambda: call("reshape", [A, 4, 2], {}),
            lambda: call("split", [A, [1, 3], 1], {}),
            lambda: call("einsum", [[A]], {}),
            lambda: call("sum", [A], {}),
            lambda: call("transpose", [A, 0], {}),
        ],
    )
    def test_what_torch_would_refuse_or_is_not_known(self, wrong: Callable[[], Any]) -> None:
        with pytest.raises(NotATensor):
            wrong()

    def test_moving_and_copying_change_nothing(self) -> None:
        for name in ("contiguous", "to", "clone", "detach"):
            assert call(name, [A], {}) is A


def transform(sources: tuple[str, ...], target: str, *operations: Operation) -> Transform:
    return Transform("WeightConverter", sources, (target,), operations)


MERGE, JOIN = Operation("MergeModulelist", (), (("dim", 0),)), Operation("Concatenate", (), (("dim", 1),))
SPLIT = transform(
    ("mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight"), "mlp.experts.gate_up_proj", MERGE, JOIN
)
DOWN = transform(("mlp.experts.*.down_proj.weight",), "mlp.experts.down_proj", MERGE)
NAMES = ("model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.down_proj")


class TestCases:
    def test_a_merging_recipe_gives_keys_and_what_becomes_of_them(self) -> None:
        gate_up, down = cases(NAMES, [SPLIT, DOWN])
        assert len(gate_up.disk) == 2 * EXPERTS
        assert gate_up.disk[-1][0] == "model.layers.0.mlp.experts.0.gate_proj.weight"
        assert gate_up.wanted.shape == (3, 4, 5)
        assert down.wanted.shape == (3, 5, 2)
        assert gate_up.wanted.item((2, 0, 0)).data == ("model.layers.0.mlp.experts.2.gate_proj.weight[0, 0]",)
        assert gate_up.wanted.item((2, 2, 1)).data == ("model.layers.0.mlp.experts.2.up_proj.weight[0, 1]",)

    def test_the_order_on_disk_is_one_that_nobody_may_trust(self) -> None:
        (down,) = cases(NAMES[1:], [DOWN])
        assert [key.split(".")[5] for key, _ in down.disk] == ["2", "1", "0"]

    def test_a_transposing_recipe(self) -> None:
        recipe = transform((r"mlp.experts.gate_up_proj$",), "mlp.experts.gate_up_proj", Operation("Transpose", (1, 2)))
        (case,) = cases(NAMES, [recipe])
        assert case.disk[0][1].shape == (3, 5, 4)
        assert case.wanted.shape == (3, 4, 5)

    @pytest.mark.parametrize(
        "unclear",
        [
            transform((r"mlp.(experts|moe).*.w1.weight",), "mlp.experts.gate_up_proj", MERGE),
            transform(("mlp.experts.*.w1.weight",), "mlp.experts.gate_up_proj", MERGE, Operation("Interleave", (1,))),
            transform(("mlp.experts.*.w1.weight",), "mixer.experts.gate_up_proj", MERGE),
        ],
    )
    def test_a_recipe_that_is_not_understood_gives_none(self, unclear: Transform) -> None:
        assert cases(NAMES, [unclear]) == []

    def test_keys_that_are_renamed_first_give_none(self) -> None:
        renaming = Transform("WeightRenaming", (r"\.down_proj\.weight$",), (".w2.weight",))
        assert [case.parameter for case in cases(NAMES, [renaming, SPLIT, DOWN])] == [NAMES[0]]


def test_real_converters_are_followed_to_the_end(veomni_models: Path) -> None:
    for model in ("qwen3_moe", "deepseek_v3", "qwen3_omni_moe", "qwen3_vl_moe"):
        facts, _ = model_facts(veomni_models / model)
        for rehearsal in facts.get("rehearsals"):
            trial = rehearsal.run(facts.get("program"), [pair for case in rehearsal.cases for pair in case.disk])
            assert dict(trial.emitted) == {case.parameter: case.wanted for case in rehearsal.cases}
            assert trial.complaint == ""


@pytest.mark.parametrize(("model_type", "width", "other"), [
    ("qwen3_moe", "moe_intermediate_size", "intermediate_size"), ("olmoe", "intermediate_size", ""),
])  # fmt: skip
def test_one_width_is_that_of_experts(model_type: str, width: str, other: str) -> None:
    sizes = _values(config_class(find_library("transformers"), model_type))
    assert sizes[width] == WIDTH
    assert not other or sizes[other] != WIDTH
