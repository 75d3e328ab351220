"""Every described function gives what torch gives, on torch's own samples."""

import itertools
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from omni_kit.upstream.torch import functions
from omni_kit.upstream.torch.tensors import DTYPES, Tensor, promoted
from tests.conftest import first

torch = pytest.importorskip("torch")

_PARTS = 20
# What torch leaves open: memory that nobody wrote, random numbers, the order of equal values.
_OPEN = {"empty", "empty_like", "new_empty"}
_TIED = {"topk", "sort", "argsort"}
# Other dtypes than those that a sample is in; `narrowed` has a test of its own.
_NARROWING = {"half", "bfloat16", "float"}
# Samples that stand in another order than torch's parameters.
_REVERSED = {"einsum", "embedding"}


@cache
def _operations() -> dict[str, list[Any]]:
    """Return torch's own operations with samples, by the name of a function that is described here."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setattr(sys, "path", [*sys.path])  # which setuptools adds to
        from torch.testing._internal.common_methods_invocations import op_db
    found: dict[str, list[Any]] = {}
    for one in op_db:
        name = one.name.rpartition(".")[2]
        if name in functions.known() and not one.name.startswith(("masked.", "linalg.")) and one.name != "where":
            found.setdefault(name, []).append(one)
    return found


@pytest.mark.parametrize("part", first(1, range(_PARTS)))
def test_values_shapes_and_dtypes_are_those_of_torch(part: int) -> None:
    for name in sorted(_operations().keys() - _OPEN - _NARROWING)[part::_PARTS]:
        _compare(name)


def _compare(name: str) -> None:
    right = 0
    for sample, args, kwargs in _samples(name):
        try:
            found = functions.call(name, [_ours(one) for one in args], {key: _ours(one) for key, one in kwargs.items()})
        except functions.UnsupportedOperation:
            continue
        _assert_equal(found, sample)
        right += 1
    assert right > 0, name


def _samples(name: str) -> Iterator[tuple[Any, list[Any], dict[str, Any]]]:
    torch.manual_seed(0)
    for op, dtype in itertools.product(_operations()[name], (torch.float64, torch.int64, torch.complex128)):
        others = op.dtypes - {torch.complex128} if torch.float64 in op.dtypes else op.dtypes
        if dtype not in others or (name in _TIED and dtype is torch.int64):
            continue
        for one in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), 40):
            args, kwargs = [one.input, *one.args], dict(one.kwargs)
            if dtype is torch.int64 and any(isinstance(value, float) for value in kwargs.values()):
                continue
            tensors = [part for part in (*args, *kwargs.values()) if isinstance(part, torch.Tensor)]
            plain = all(part.layout is torch.strided and (part.ndim or part is not args[0]) for part in tensors)
            if plain and not kwargs.get("training") and not kwargs.get("dropout_p"):
                result = op(*(part.clone() if isinstance(part, torch.Tensor) else part for part in args), **kwargs)
                yield result, args[::-1] if name in _REVERSED else args, kwargs


def _ours(one: Any) -> Any:
    if isinstance(one, torch.Tensor):
        return Tensor(one.detach().resolve_conj().numpy().copy(), DTYPES[str(one.dtype).removeprefix("torch.")])
    if isinstance(one, torch.dtype):
        return DTYPES[str(one).removeprefix("torch.")]
    if isinstance(one, torch.Size):
        return tuple(one)
    return type(one)(map(_ours, one)) if type(one) in {list, tuple} else one


def _assert_equal(found: Any, torchs: Any) -> None:
    if isinstance(torchs, torch.Tensor):
        assert isinstance(found, Tensor)
        assert found.shape == tuple(torchs.shape)
        assert found.dtype == DTYPES[str(torchs.dtype).removeprefix("torch.")]
        loose = torchs.dtype in {torch.float32, torch.complex64}
        values = torchs.detach().resolve_conj().numpy()
        assert np.allclose(
            found.data, values, equal_nan=True, rtol=1e-5 if loose else 1e-9, atol=1e-5 if loose else 1e-9
        )
    elif isinstance(torchs, list | tuple):
        assert len(found) == len(torchs)
        for one, other in zip(found, torchs, strict=True):
            _assert_equal(one, other)


_DTYPES = ("bool", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def test_dtypes_are_promoted_as_torch_promotes_them() -> None:
    each = itertools.product(_DTYPES, [(2,), ()])
    for pair in itertools.product(each, repeat=2):
        torchs = torch.result_type(*(torch.ones(shape, dtype=getattr(torch, name)) for name, shape in pair))
        ours = promoted(*(Tensor(np.ones(shape), DTYPES[name]) for name, shape in pair))
        assert f"torch.{ours.name}" == str(torchs), pair


@pytest.mark.parametrize("name", _DTYPES)
@pytest.mark.parametrize("number", [True, 2, 2.5])
def test_numbers_do_not_widen_tensors(name: str, number: float) -> None:
    torchs = torch.result_type(torch.ones(2, dtype=getattr(torch, name)), number)
    assert f"torch.{promoted(Tensor(np.ones(2), DTYPES[name]), number).name}" == str(torchs)


def test_a_value_that_was_only_widened_is_narrowed_back_without_change() -> None:
    low = Tensor(np.linspace(0.1, 1, 5), DTYPES["bfloat16"])
    wide = functions.getitem(low.to(DTYPES["float32"]), slice(1, None))
    assert np.array_equal(wide.to(low.dtype).data, low.data[1:])


def test_a_value_that_was_computed_wide_is_changed_by_narrowing_and_by_that_alone() -> None:
    low = Tensor(np.linspace(0.1, 1, 5), DTYPES["bfloat16"])
    wide = functions.call("mul", [low.to(DTYPES["float32"]), low.to(DTYPES["float32"])], {})
    assert np.array_equal(wide.data, low.data**2)
    assert not np.allclose(wide.to(low.dtype).data, wide.data, rtol=1e-6)


def test_grouped_products_take_each_group_with_its_own_matrix() -> None:
    rows, matrices = torch.randn(5, 4, dtype=torch.float64), torch.randn(3, 4, 2, dtype=torch.float64)
    found = functions.call("_grouped_mm", [_ours(rows), _ours(matrices)], {"offs": _ours(torch.tensor([2, 2, 5]))})
    _assert_equal(found, torch.cat([rows[:2] @ matrices[0], rows[2:] @ matrices[2]]))


def test_writing_in_place_reaches_the_tensor_through_its_view() -> None:
    tensor = Tensor(np.arange(6.0).reshape(2, 3), DTYPES["float32"])
    first, _ = functions.call("chunk", [tensor, 2], {"dim": 0})
    functions.call("add_", [first, 10], {})
    assert tensor.data[0].tolist() == [10, 11, 12]


@pytest.mark.parametrize(
    "args", [("no_such_function", []), ("softmax", ["text"]), ("matmul", [Tensor(np.ones(2), DTYPES["float32"])])]
)
def test_what_cannot_be_evaluated_is_said(args: tuple[str, list[Any]]) -> None:
    with pytest.raises(functions.UnsupportedOperation, match=args[0]):
        functions.call(*args, {})
