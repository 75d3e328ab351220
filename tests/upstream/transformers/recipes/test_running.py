"""Recipes run on expressions, there and back, with recipes of every operation that rearranges."""

from typing import Any

import numpy as np
import pytest

from omni_kit.errors import BadInput
from omni_kit.upstream.transformers.recipes.book import Recipe
from omni_kit.upstream.transformers.recipes.expression import whole
from omni_kit.upstream.transformers.recipes.running import Tensors, to_hub, to_memory
from omni_kit.upstream.transformers.recipes.transform import Operation, Transform
from tests.upstream.transformers.recipes.evaluate import evaluate


def operation(name: str, **arguments: Any) -> Operation:
    return Operation(name, (), tuple(arguments.items()))


def recipe(*transforms: Transform) -> Recipe:
    return Recipe(transforms, ("model_type:toy",), None, None, "0")


def converter(sources: list[str], targets: list[str], *operations: Operation, scope: str = "") -> Transform:
    return Transform("WeightConverter", tuple(sources), tuple(targets), operations, (f"{scope}.",) if scope else ())


def renaming(source: str, target: str, kind: str = "WeightRenaming") -> Transform:
    return Transform(kind, (source,), (target,))


def make(**shapes: tuple[int, ...]) -> tuple[Tensors, dict[str, np.ndarray]]:
    """Tensors of these shapes, in which every element differs; `_` in a name stands for a dot."""
    sources: dict[str, np.ndarray] = {}
    position = 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        sources[name.replace("_", ".")] = np.arange(position, position + size).reshape(shape)
        position += size
    return {name: whole(name, array.shape) for name, array in sources.items()}, sources


SPLIT = recipe(
    renaming(r"^l\.box\.", "l.mlp."),
    converter(
        ["mlp.*.w1", "mlp.*.w3"], ["mlp.gate_up"], operation("MergeModulelist", dim=0), operation("Concatenate", dim=1)
    ),
    converter(["mlp.*.w2"], ["mlp.down"], operation("MergeModulelist", dim=0)),
)


def test_split_experts_are_merged_in_the_order_of_their_numbers() -> None:
    names = {f"l_box_{i}_{w}": (3, 5) for i in (10, 2, 1, 0, 3, 4, 5, 6, 7, 8, 9) for w in ("w1", "w3", "w2")}
    tensors, sources = make(**names)
    found = to_memory(SPLIT, tensors, {})
    assert set(found) == {"l.mlp.gate_up", "l.mlp.down"}
    gate, up = (np.stack([sources[f"l.box.{i}.{w}"] for i in range(11)]) for w in ("w1", "w3"))
    assert (evaluate(found["l.mlp.gate_up"], sources) == np.concatenate([gate, up], 1)).all()
    back = to_hub(SPLIT, found, {})
    assert {name: x.unmoved for name, x in back.items()} == {name: name for name in sources}


BOTH_WAYS: dict[str, tuple[Transform, dict[str, tuple[int, ...]]]] = {
    "chunk": (converter(["qkv"], ["q", "k", "v"], operation("Chunk", dim=0)), {"a_qkv": (6, 5)}),
    "concatenate": (converter(["q", "k"], ["qk"], operation("Concatenate", dim=1)), {"a_q": (2, 3), "a_k": (2, 3)}),
    "transpose": (converter(["w"], ["x"], operation("Transpose", dim0=0, dim1=1)), {"a_w": (2, 3)}),
    "interleave": (converter(["w13"], ["gate_up"], operation("Interleave", dim=1)), {"a_w13": (2, 6, 3)}),
    "interleave and chunk": (
        converter(["w13"], ["gate", "up"], operation("Interleave", dim=0), operation("Chunk", dim=0)),
        {"a_w13": (6, 3)},
    ),
    "rows of two heads": (
        converter(
            ["qkv"],
            ["q", "k", "v"],
            operation("Chunk", dim=0),
            operation("PermuteForRope", heads=2, permuted=(True, True, False)),
        ),
        {"a_qkv": (24, 3)},
    ),
    "text and vision": (
        converter(
            ["e.*.gate", "e.*.up"],
            ["text.gate_up", "vision.gate_up"],
            operation("ErnieFuseAndSplitTextVisionExperts", stack_dim=0, concat_dim=1),
        ),
        {f"a_e_{i}_{w}": (2 if i < 2 else 3, 4) for i in range(4) for w in ("gate", "up")},
    ),
}


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_every_operation_comes_back(name: str) -> None:
    transform, shapes = BOTH_WAYS[name]
    tensors, sources = make(**shapes)
    there = to_memory(recipe(transform), tensors, {})
    assert not there.keys() & sources.keys()
    back = to_hub(recipe(transform), there, {})
    assert {key: x.unmoved for key, x in back.items()} == {key: key for key in sources}


def test_interleave_takes_alternating_rows_apart() -> None:
    transform, shapes = BOTH_WAYS["interleave"]
    tensors, sources = make(**shapes)
    found = evaluate(to_memory(recipe(transform), tensors, {})["a.gate.up".replace("gate.up", "gate_up")], sources)
    rows = sources["a.w13"]
    assert (found == np.concatenate([rows[:, ::2], rows[:, 1::2]], 1)).all()


def test_rows_of_each_head_are_taken_apart_where_the_recipe_names_them() -> None:
    transform, shapes = BOTH_WAYS["rows of two heads"]
    tensors, sources = make(**shapes)
    found = to_memory(recipe(transform), tensors, {})
    q, _, v = np.split(sources["a.qkv"], 3)
    assert (evaluate(found["a.q"], sources) == q[[0, 2, 1, 3, 4, 6, 5, 7]]).all()
    assert (evaluate(found["a.v"], sources) == v).all()


def test_renamings_that_count_are_refused_where_they_match() -> None:
    rules = recipe(Transform("OffsetRename", (r"queries\.(\d+)",), (r"layers.\1.query",)))
    with pytest.raises(BadInput, match="OffsetRename, which does more than rename"):
        to_memory(rules, {"queries.0": whole("x", (2,))}, {})
    assert list(to_memory(rules, {"keys.0": whole("x", (2,))}, {})) == ["keys.0"]


def test_text_and_vision_experts_are_halves_of_one_list() -> None:
    transform, shapes = BOTH_WAYS["text and vision"]
    tensors, sources = make(**shapes)
    found = to_memory(recipe(transform), tensors, {})
    assert found["a.text.gate_up"].shape == (2, 4, 4)
    vision = np.concatenate([np.stack([sources[f"a.e.{i}.{w}"] for i in (2, 3)]) for w in ("gate", "up")], 1)
    assert (evaluate(found["a.vision.gate_up"], sources) == vision).all()


def test_a_split_into_unequal_parts_needs_the_shapes() -> None:
    transform = converter(["qkv"], ["q", "k", "v"], operation("Split", dim=0))
    tensors, sources = make(a_qkv=(8, 2))
    found = to_memory(recipe(transform), tensors, {"a.q": (4, 2), "a.k": (2, 2), "a.v": (2, 2)})
    assert [found[f"a.{part}"].shape[0] for part in "qkv"] == [4, 2, 2]
    assert to_hub(recipe(transform), found, {})["a.qkv"].unmoved == "a.qkv"
    with pytest.raises(BadInput, match="sizes of its parts are not known"):
        to_memory(recipe(transform), tensors, {})
    assert sources


def test_a_transposition_that_checks_dimensions() -> None:
    """Loading leaves alone what fits already; published checkpoints have the transposed form."""
    transform = converter(["w"], ["w"], operation("Transpose", dim0=1, dim1=2, check_dims=True))
    tensors, _ = make(a_w=(2, 3, 4))
    assert to_memory(recipe(transform), tensors, {"a.w": (2, 3, 4)})["a.w"].unmoved == "a.w"
    assert to_memory(recipe(transform), tensors, {"a.w": (2, 4, 3)})["a.w"].shape == (2, 4, 3)
    assert to_hub(recipe(transform), tensors, {})["a.w"].shape == (2, 4, 3)


def test_scales_go_the_way_of_their_weights() -> None:
    """Also where a pattern ends at the weight's name."""
    transform = converter(
        ["mlp.*.w1.weight$", "mlp.*.w3.weight$"],
        ["mlp.gate_up$"],
        operation("MergeModulelist", dim=0),
        operation("Concatenate", dim=1),
    )
    tensors = {"a.mlp.gate_up": whole("g", (2, 4, 6)), "a.mlp.gate_up_scale_inv": whole("s", (2, 2, 3))}
    found = to_hub(recipe(transform), tensors, {})
    assert found["a.mlp.1.w3.weight_scale_inv"].shape == (1, 3)
    assert len(found) == 8


def test_scales_of_alternating_rows_are_refused() -> None:
    transform, _ = BOTH_WAYS["interleave"]
    tensors = {"a.gate_up": whole("g", (2, 4, 6)), "a.gate_up_scale_inv": whole("s", (2, 2, 3))}
    with pytest.raises(BadInput, match="interleaved gate and up rows"):
        to_hub(recipe(transform), tensors, {})
    assert to_hub(recipe(transform), {"a.gate_up": tensors["a.gate_up"]}, {})


def test_scopes_anchors_and_groups() -> None:
    rules = recipe(
        Transform("WeightRenaming", (r"^layers\.",), ("blocks.",), (), ("vision.",)),
        Transform("WeightRenaming", (r"^(enc|dec)_norm",), (r"\1.norm",)),
        renaming(r"^(.+)$", r"model.\1", "PrefixChange"),
    )
    both = {key: whole(key, (2,)) for key in ("vision.layers.0.w", "text.layers.0.w")}
    assert list(to_memory(rules, both, {})) == ["model.vision.blocks.0.w", "model.text.layers.0.w"]
    plain = recipe(*rules.transforms[:2])
    keys = ["vision.layers.0.w", "text.layers.0.w", "enc_norm.weight", "dec_norm.weight"]
    tensors = {key: whole(key, (2,)) for key in keys}
    found = to_memory(plain, tensors, {})
    assert "enc.norm.weight" in found
    assert list(to_hub(plain, {n: x for n, x in found.items() if "norm" not in n}, {})) == keys[:2]


def test_a_parameter_keeps_its_name_where_renaming_leads_away_from_all() -> None:
    """An unescaped dot in a pattern matches the very name that it leads to."""
    rules = recipe(renaming("mlp.shared.", "mlp.shareds."))
    tensors = {"mlp.shareds.w": whole("x", (2,))}
    assert list(to_memory(rules, tensors, {"mlp.shareds.w": (2,)})) == ["mlp.shareds.w"]
    assert list(to_hub(rules, tensors, {"mlp.shareds.w": (2,)})) == ["mlp.shared.w"]


def test_a_name_that_cannot_be_traced_back_is_refused() -> None:
    rules = recipe(renaming(r"^a\.", "c."), renaming(r"^b\.", "c."), renaming(r"^c\.x", "d.x"))
    with pytest.raises(BadInput, match="cannot be renamed to hub names"):
        to_hub(rules, {"c.x": whole("c.x", (2,))}, {})


def test_operations_that_do_more_than_rearrange_are_refused() -> None:
    tensors, _ = make(a_w=(4, 2))
    with pytest.raises(BadInput, match="how many heads"):
        to_memory(recipe(converter(["w"], ["x"], operation("PermuteForRope"))), tensors, {})
    with pytest.raises(BadInput, match=r"Conv3dToLinear\(\), which does more than rearrange"):
        to_memory(recipe(converter(["w"], ["x"], operation("Conv3dToLinear"))), tensors, {})
    with pytest.raises(BadInput, match="the inverse of Conv3dToLinear"):
        to_hub(recipe(converter(["w"], ["x"], operation("Conv3dToLinear"))), {"a.x": tensors["a.w"]}, {})
    untouched = {"a.y": tensors["a.w"]}
    assert to_hub(recipe(converter(["w"], ["x"], operation("Conv3dToLinear"))), untouched, {}) == untouched
    counted = operation("Concatenate", dim=0, num_shards_attribute="n")
    with pytest.raises(BadInput, match="num_shards_attribute"):
        to_memory(recipe(converter(["w"], ["x"], counted)), tensors, {})


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"l_mlp_0_w1": (3, 5)}, "needs mlp.*.w3, which is missing"),
        ({"l_mlp_0_w1": (3, 5), "l_mlp_1_w1": (3, 4), "l_mlp_0_w3": (3, 5)}, "cannot stack"),
        ({"l_mlp_0_w1": (3, 5), "l_mlp_0_w3": (3, 4)}, "cannot concatenate"),
    ],
)
def test_tensors_that_do_not_fit(shapes: dict[str, tuple[int, ...]], said: str) -> None:
    tensors, _ = make(**shapes)
    with pytest.raises(BadInput) as caught:
        to_memory(SPLIT, tensors, {})
    assert said in caught.value.message


def test_no_recipe_changes_nothing() -> None:
    tensors, _ = make(a_w=(2, 3))
    assert to_memory(None, tensors, {}) is tensors
    assert to_hub(None, tensors, {}) is tensors
