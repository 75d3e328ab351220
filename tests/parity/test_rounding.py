"""Where a module rounds."""

import torch
from torch import nn

from omni_kit.parity.compare.operations import Operations
from omni_kit.parity.compare.rounding import rounding
from omni_kit.parity.compare.trace import ModuleCall
from omni_kit.toys.weights import shuffled_ramp

EXACT = shuffled_ramp("rounded", (60, 50)) * 3
LOW = EXACT.to(torch.bfloat16)


def call(**operations: int) -> ModuleCall:
    return ModuleCall(0, "norm", 0, -1, "Norm", "", "", operations=operations)


def counted(function: object, *args: torch.Tensor) -> dict[str, int]:
    found: dict[str, int] = {}

    def note(what: str) -> None:
        found[what] = found.get(what, 0) + 1

    with Operations(note):
        function(*args)  # type: ignore[operator]
    return found


def test_operations_are_counted_by_dtype_and_casts_by_what_they_give() -> None:
    def norm(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * 2

    assert counted(norm, LOW) == {"to float32": 1, "float32": 5, "to bfloat16": 1, "bfloat16": 1}


def test_moves_count_for_nothing_and_products_are_named() -> None:
    assert counted(lambda x: torch.cat([x.view(50, 60).mT, x], 1)[:, :3].contiguous(), LOW) == {}
    assert counted(lambda x: nn.functional.linear(x, x), LOW) == {"bfloat16": 1, "sum mm": 1}


def test_equal_bits_are_right_whatever_was_computed() -> None:
    found = rounding(call(float32=3), call(float32=4), {"": (LOW, LOW.clone())}, "bfloat16")
    assert (found.differing, found.ulps, found.wrong) == (0, 0.0, "")


def test_many_other_bits_and_other_dtypes_are_a_cast_that_moved() -> None:
    other = (EXACT * 1.004).to(torch.bfloat16)
    found = rounding(call(float32=3, bfloat16=1), call(float32=4), {"": (LOW, other)}, "bfloat16")
    assert found.wrong.startswith("norm rounds elsewhere than upstream (")
    assert "0 operations in bfloat16, upstream 1, 4 operations in float32, upstream 3" in found.wrong


def test_other_bits_by_the_same_operations_are_another_order() -> None:
    other = (EXACT * 1.004).to(torch.bfloat16)
    assert not rounding(call(bfloat16=2), call(bfloat16=2), {"": (LOW, other)}, "bfloat16").wrong
    # Who adds in another order by another operation is judged by how far it is from float32.
    sums = call(**{"sum mm": 1, "float32": 1}), call(**{"sum bmm": 1, "bfloat16": 1})
    assert not rounding(*sums, {"": (LOW, other)}, "bfloat16").wrong


def test_a_few_last_bits_are_no_cast() -> None:
    other = LOW.clone()
    other[0, :20] *= 1.01
    assert not rounding(call(float32=3), call(float32=4), {"": (LOW, other)}, "bfloat16").wrong


def test_another_dtype_is_named() -> None:
    found = rounding(call(), call(), {"weights": (LOW, LOW.float())}, "bfloat16")
    assert found.wrong == "norm returns float32 as weights, upstream bfloat16"


def test_float32_results_show_a_rounding_on_the_way() -> None:
    outputs = {"loss": (EXACT, LOW.float())}
    assert rounding(call(float32=2), call(bfloat16=2), outputs, "bfloat16").wrong
    assert not rounding(call(float32=2), call(bfloat16=2), {"loss": (EXACT, EXACT * (1 + 1e-6))}, "bfloat16").wrong
