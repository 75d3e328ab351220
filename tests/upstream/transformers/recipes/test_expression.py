"""Operations on shapes against numpy, and the inverse that they carry in them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_kit.upstream.transformers.recipes.expression import (
    Expression,
    cut,
    deinterleave,
    halves,
    interleave,
    join,
    split,
    stack,
    strides,
    transpose,
    unstack,
    whole,
)
from tests.upstream.transformers.recipes.evaluate import evaluate

A = np.arange(4 * 6 * 8).reshape(4, 6, 8)
B = A + 1000
SOURCES = {"a": A, "b": B}


def a() -> Expression:
    return whole("a", A.shape)


def b() -> Expression:
    return whole("b", B.shape)


def same(x: Expression, array: Any) -> bool:
    wanted = np.asarray(array)
    return x.shape == wanted.shape and bool((evaluate(x, SOURCES) == wanted).all())


@pytest.mark.parametrize("dim", range(3))
def test_each_operation_against_numpy(dim: int) -> None:
    assert same(cut(a(), dim, 1, 4, 2), A.take([1, 3], dim))
    assert same(join([a(), b()], dim), np.concatenate([A, B], dim))
    assert same(stack([a(), b()], dim), np.stack([A, B], dim))
    first, second = halves(a(), dim)
    assert same(join([second, first], dim), np.roll(A, A.shape[dim] // 2, dim))
    assert [same(x, A.take(i, dim)) for i, x in enumerate(unstack(a(), dim))] == [True] * A.shape[dim]
    even, odd = np.split(np.arange(A.shape[dim]).reshape(-1, 2), 2, axis=1)
    assert same(deinterleave(a(), dim), A.take([*even.ravel(), *odd.ravel()], dim))
    assert same(interleave(deinterleave(a(), dim), dim), A)


def test_transpose() -> None:
    assert same(transpose(a()), A.swapaxes(1, 2))
    assert same(transpose(a(), 0, 2), A.swapaxes(0, 2))


def test_the_stack_of_split_experts_is_what_transformers_makes() -> None:
    gates = [cut(a(), 0, i, i + 1) for i in range(4)]
    merged = join([stack([x for g in gates for x in unstack(g)]), b()], 1)
    assert same(merged, np.concatenate([A, B], 1))


STEPS: dict[str, Callable[[Expression, np.ndarray, int, int], tuple[Expression, np.ndarray]]] = {
    "cut": lambda x, y, d, n: (
        cut(x, d, n % y.shape[d], y.shape[d], n % 3 + 1),
        y.take(range(n % y.shape[d], y.shape[d], n % 3 + 1), d),
    ),
    "transpose": lambda x, y, d, n: (transpose(x, d, n % 3), y.swapaxes(d, n % 3)),
    "deinterleave": lambda x, y, d, n: (
        deinterleave(x, d),
        y.take([*range(0, y.shape[d], 2), *range(1, y.shape[d], 2)], d),
    ),
    "rotate": lambda x, y, d, n: (
        join(split(x, [y.shape[d] - n % y.shape[d], n % y.shape[d]], d)[::-1], d),
        np.roll(y, n % y.shape[d], d),
    ),
    "restack": lambda x, y, d, n: (stack(unstack(x, d)[::-1], d), np.flip(y, d)),
    "double": lambda x, y, d, n: (interleave(join([x, x], d), d), np.repeat(y, 2, d)),
}


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 2), st.integers(0, 9)), max_size=6))
def test_any_chain_of_operations(chain: list[tuple[str, int, int]]) -> None:
    x, y = a(), A
    for name, dim, number in chain:
        if name == "double" and y.size > 1000:
            continue
        x, y = STEPS[name](x, y, dim, number)
    assert same(x, y)


def test_unmoved_is_seen_through_operations_that_cancel() -> None:
    assert a().unmoved == "a"
    assert interleave(deinterleave(a(), 1), 1).unmoved == "a"
    assert transpose(transpose(a())).unmoved == "a"
    assert stack(unstack(a())).unmoved == "a"
    assert join(halves(a(), 0), 0).unmoved == "a"


def test_unmoved_stays_quiet_where_something_moves() -> None:
    assert transpose(a()).unmoved is None
    assert deinterleave(a(), 0).unmoved is None
    assert join([a(), b()], 0).unmoved is None
    assert cut(a(), 0, 1, 2).unmoved is None
    assert join(halves(a(), 1)[::-1], 1).unmoved is None


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (1, 1, 5)])
def test_odd_shapes(shape: tuple[int, ...]) -> None:
    x = whole("c", shape)
    assert x.size == np.zeros(shape).size
    assert same_as(x, np.arange(x.size).reshape(shape))
    assert stack([x, x]).shape == (2, *shape)


def same_as(x: Expression, wanted: np.ndarray) -> bool:
    return bool((evaluate(x, {"c": wanted}) == wanted).all())


def test_strides_are_row_major() -> None:
    assert strides((4, 6, 8)) == (48, 8, 1)
    assert strides(()) == ()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda: join([a(), whole("c", (4, 5, 9))], 1), "cannot concatenate"),
        (lambda: stack([a(), whole("c", (4, 6))]), "cannot stack"),
        (lambda: split(a(), [3, 2], 1), "cannot split"),
        (lambda: halves(whole("c", (3,)), 0), "cannot split"),
        (lambda: interleave(whole("c", (3,)), 0), "cannot split"),
    ],
)
def test_shapes_that_do_not_fit(broken: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        broken()
