"""Every layout of experts to the canonical form, on element numbers, and to every form in memory."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from omni_kit.convert.experts import Experts, decodable, decode, encode
from omni_kit.errors import BadInput
from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.disk import DiskReading, read_disk
from omni_kit.layout.exact import obstacle
from omni_kit.layout.groups import ExpertGroup, expert_groups
from omni_kit.layout.headers import TensorInfo
from omni_kit.layout.taxonomy import CANONICAL_PAIR, Disk, Memory
from omni_kit.upstream.transformers.recipes.expression import whole
from tests.upstream.transformers.recipes.evaluate import evaluate

EXPERTS, WIDTH, HIDDEN = 3, 4, 10
BOX = "model.layers.0.mlp.experts"
Arrays = dict[str, np.ndarray]

GATE = np.arange(EXPERTS * WIDTH * HIDDEN).reshape(EXPERTS, WIDTH, HIDDEN)
UP = GATE + 1000
DOWN = np.arange(EXPERTS * HIDDEN * WIDTH).reshape(EXPERTS, HIDDEN, WIDTH) + 2000
GATE_UP = np.concatenate([GATE, UP], 1)
ALTERNATING = np.stack([GATE, UP], 2).reshape(EXPERTS, 2 * WIDTH, HIDDEN)
BIAS = np.arange(EXPERTS * 2 * WIDTH).reshape(EXPERTS, 2 * WIDTH) + 3000
BIAS_ALTERNATING = np.stack([BIAS[:, :WIDTH], BIAS[:, WIDTH:]], 2).reshape(EXPERTS, 2 * WIDTH)
DOWN_BIAS = np.arange(EXPERTS * HIDDEN).reshape(EXPERTS, HIDDEN) + 4000


def turned(array: np.ndarray) -> np.ndarray:
    return array.swapaxes(1, 2)


def split(*leaves: tuple[str, np.ndarray]) -> Arrays:
    return {f"{BOX}.{e}.{leaf}": array[e] for e in range(EXPERTS) for leaf, array in leaves}


def stacked(**leaves: np.ndarray) -> Arrays:
    return {f"{BOX}.{leaf}": array for leaf, array in leaves.items()}


LAYOUTS: dict[Disk, tuple[Arrays, bool]] = {
    Disk.per_expert: (split(("gate_proj.weight", GATE), ("up_proj.weight", UP), ("down_proj.weight", DOWN)), False),
    Disk.fused: (stacked(gate_up_proj=GATE_UP, down_proj=DOWN), False),
    Disk.fused_renamed: ({f"{BOX}.input_linear.weight": GATE_UP, f"{BOX}.output_linear.weight": DOWN}, False),
    Disk.fused_transposed: (stacked(gate_up_proj=turned(GATE_UP), down_proj=turned(DOWN)), False),
    Disk.fused_interleaved_rows: (stacked(w13_weight=ALTERNATING, w2_weight=DOWN), True),
    Disk.stacked_unfused: (stacked(gate_proj=GATE, up_proj=UP, down_proj=DOWN), False),
    Disk.fused_transposed_bias: (
        stacked(gate_up_proj=turned(GATE_UP), down_proj=turned(DOWN), gate_up_proj_bias=BIAS, down_proj_bias=DOWN_BIAS),
        False,
    ),
    Disk.fused_transposed_interleaved: (
        stacked(
            gate_up_proj=turned(ALTERNATING),
            down_proj=turned(DOWN),
            gate_up_proj_bias=BIAS_ALTERNATING,
            down_proj_bias=DOWN_BIAS,
        ),
        True,
    ),
}


def read(arrays: Arrays, interleaved: bool = False, dtype: str = "F32") -> tuple[ExpertGroup, DiskReading, Checkpoint]:
    infos = {name: TensorInfo(dtype, array.shape, Path("x"), 0, array.size * 4) for name, array in arrays.items()}
    checkpoint = Checkpoint(Path("x"), infos, (Path("x"),))
    (group,) = expert_groups(checkpoint)
    return group, read_disk(group, checkpoint, interleaved), checkpoint


def decoded(arrays: Arrays, interleaved: bool = False, block: int | None = None) -> Experts:
    group, reading, checkpoint = read(arrays, interleaved)
    if why := obstacle(group, reading, checkpoint, block):
        raise BadInput(why)
    return decode(group, reading, checkpoint)


@pytest.mark.parametrize("disk", LAYOUTS)
def test_every_layout_becomes_canonical(disk: Disk) -> None:
    arrays, interleaved = LAYOUTS[disk]
    group, reading, checkpoint = read(arrays, interleaved)
    assert reading.disk is disk
    assert decodable(reading)
    experts = decode(group, reading, checkpoint)
    wanted = {"gate_up_proj": GATE_UP, "down_proj": DOWN}
    if "bias" in disk or disk is Disk.fused_transposed_interleaved:
        wanted |= {"gate_up_proj_bias": BIAS, "down_proj_bias": DOWN_BIAS}
    assert experts.keys == arrays.keys()
    assert experts.tensors.keys() == wanted.keys()
    for name, array in wanted.items():
        assert (evaluate(experts.tensors[name], arrays) == array).all()


@pytest.mark.parametrize("names", [("w1", "w3", "w2"), ("fc1", "fc3", "fc2"), ("gate_proj", "up_proj", "down_proj")])
def test_whatever_gate_up_and_down_are_called(names: tuple[str, str, str]) -> None:
    arrays = split(*((f"{name}.weight", array) for name, array in zip(names, (GATE, UP, DOWN), strict=True)))
    assert (evaluate(decoded(arrays).tensors["gate_up_proj"], arrays) == GATE_UP).all()


def test_no_gate_stays_without_one() -> None:
    arrays = split(("up_proj.weight", UP), ("down_proj.weight", DOWN))
    experts = decoded(arrays)
    assert {
        name: (evaluate(x, arrays) == w).all() for (name, x), w in zip(experts.tensors.items(), (UP, DOWN), strict=True)
    } == {
        "up_proj": True,
        "down_proj": True,
    }
    assert encode(experts, Memory.no_gate, CANONICAL_PAIR).keys() == {"up_proj", "down_proj"}


def test_experts_are_in_the_order_of_their_numbers_not_of_their_names() -> None:
    count = 12
    leaves = {"gate_proj": (2, 3), "up_proj": (2, 3), "down_proj": (3, 2)}
    arrays = {
        f"{BOX}.{e}.{leaf}.weight": np.full(shape, e)
        for e in sorted(range(count), key=str)
        for leaf, shape in leaves.items()
    }
    gate_up = evaluate(decoded(arrays).tensors["gate_up_proj"], arrays)
    assert gate_up[:, 0, 0].tolist() == list(range(count))


MEMORIES: dict[Memory, Callable[[np.ndarray], np.ndarray]] = {
    Memory.canonical: lambda gate_up: gate_up,
    Memory.canonical_renamed: lambda gate_up: gate_up,
    Memory.transposed: turned,
    Memory.transposed_bias: turned,
    Memory.transposed_interleaved: lambda gate_up: turned(np.stack(np.split(gate_up, 2, 1), 2).reshape(gate_up.shape)),
}


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("disk", LAYOUTS)
def test_from_every_layout_to_every_form_in_memory(disk: Disk, memory: Memory) -> None:
    arrays, interleaved = LAYOUTS[disk]
    found = encode(decoded(arrays, interleaved), memory, ("first.weight", "second.weight"))
    assert (evaluate(found["first.weight"], arrays) == MEMORIES[memory](GATE_UP)).all()
    down = turned(DOWN) if memory.startswith("transposed") else DOWN
    assert (evaluate(found["second.weight"], arrays) == down).all()


def test_biases_alternate_with_their_rows_and_are_not_transposed() -> None:
    arrays, interleaved = LAYOUTS[Disk.fused_transposed_interleaved]
    experts = decoded(arrays, interleaved)
    found = encode(experts, Memory.transposed_interleaved, CANONICAL_PAIR)
    assert {f"{BOX}.{leaf}": x.unmoved for leaf, x in found.items()} == {name: name for name in arrays}
    apart = encode(experts, Memory.transposed_bias, CANONICAL_PAIR)
    assert (evaluate(apart["gate_up_proj_bias"], arrays) == BIAS).all()


def with_scales(block: int) -> Arrays:
    arrays = LAYOUTS[Disk.per_expert][0]
    scales: Arrays = {}
    for number, (name, array) in enumerate(arrays.items()):
        shape = [-(-size // block) for size in array.shape]
        scales[f"{name}_scale_inv"] = np.arange(np.prod(shape)).reshape(shape) + 100 * number
    return arrays | scales


def test_scales_of_whole_blocks_ride_along() -> None:
    arrays = with_scales(2)
    found = decoded(arrays, block=2).tensors
    gate = np.stack([arrays[f"{BOX}.{e}.gate_proj.weight_scale_inv"] for e in range(EXPERTS)])
    up = np.stack([arrays[f"{BOX}.{e}.up_proj.weight_scale_inv"] for e in range(EXPERTS)])
    assert (evaluate(found["gate_up_proj_scale_inv"], arrays) == np.concatenate([gate, up], 1)).all()
    assert found["down_proj_scale_inv"].shape == (EXPERTS, 5, 2)
    assert "gate_up_proj_scale_inv" in decoded(arrays).tensors, "the block's size shows without a config"


@pytest.mark.parametrize("block", [3, 8])
def test_scales_of_blocks_that_gate_does_not_fill_are_refused(block: int) -> None:
    with pytest.raises(BadInput, match="one scale would cover gate and up"):
        decoded(with_scales(block), block=block)


def test_scales_of_rows_that_alternate_are_refused() -> None:
    scale = {
        f"{BOX}.w13_weight_scale_inv": np.zeros((EXPERTS, 4, 5)),
        f"{BOX}.w2_weight_scale_inv": np.zeros((EXPERTS, 5, 2)),
    }
    with pytest.raises(BadInput, match="one scale covers a block of both"):
        decoded(LAYOUTS[Disk.fused_interleaved_rows][0] | scale, interleaved=True)
    fine = Experts(
        {"gate_up_proj": whole("x", (EXPERTS, 8, HIDDEN)), "gate_up_proj_scale_inv": whole("s", (EXPERTS, 4, 5))}
    )
    assert encode(fine, Memory.transposed, CANONICAL_PAIR)["gate_up_proj_scale_inv"].shape == (EXPERTS, 5, 4)
    with pytest.raises(BadInput, match="interleaved gate and up rows"):
        encode(fine, Memory.transposed_interleaved, CANONICAL_PAIR)


def test_a_scale_that_one_expert_lacks_is_named() -> None:
    arrays = with_scales(2)
    lost = f"{BOX}.2.up_proj.weight_scale_inv"
    del arrays[lost]
    with pytest.raises(BadInput, match=r"is missing, .*gate_proj\.weight_scale_inv is there") as caught:
        decoded(arrays, block=2)
    assert lost in caught.value.message


def test_a_scale_that_one_leaf_lacks_is_refused() -> None:
    arrays = {name: array for name, array in with_scales(2).items() if not name.endswith("down_proj.weight_scale_inv")}
    with pytest.raises(BadInput, match=r"down_proj\.weight_scale_inv is missing"):
        decoded(arrays, block=2)


@pytest.mark.parametrize("disk", [None, Disk.module_dict, Disk.flat_2d, Disk.retrieval, Disk.per_expert_two_width])
def test_what_has_no_canonical_form_is_not_decodable(disk: Disk | None) -> None:
    assert not decodable(DiskReading(disk, (), 0, False, ()))


def test_what_is_ambiguous_is_not_decodable() -> None:
    assert decodable(DiskReading(Disk.fused, CANONICAL_PAIR, EXPERTS, False, ()))
    assert not decodable(DiskReading(Disk.fused, CANONICAL_PAIR, EXPERTS, True, ()))
