"""Determine whether code computes what something else computes: both are evaluated on the same numbers.

Equal numbers on random inputs of several magnitudes are taken for equal code: a clamp, a factor, a bias, an axis, an
order or a cast that one has and the other has not changes them. Gradients agree where the numbers still do after the
input moved while everything behind `detach` stayed.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations, islice
from typing import Any

import numpy as np

from omni_kit.pysource.eval import Unsupported
from omni_kit.upstream.construction import Module
from omni_kit.upstream.torch.functions import call
from omni_kit.upstream.torch.running import LOW, TensorValues, tensors_in
from omni_kit.upstream.torch.tensors import FLOAT32, INT64, Dtype, Tensor

_TOLERANCE = 1e-8
_MOVE = 0.01
_MOST = 80
"""Limit of evaluations spent on finding the cause of a difference."""


@dataclass
class Trial:
    """One evaluation, and the numbers that it starts from.

    Attributes:
        values: what evaluates.
        scale: how large inputs are.
        moved: how far inputs are from where they were at first.
        expected: what the code is expected to compute on its way, in any order.
    """

    values: TensorValues
    scale: float
    moved: float = 0.0
    expected: list[Tensor] = field(default_factory=list)
    _made: int = field(default=0)

    def tensor(self, *shape: int, dtype: Dtype | None = None, scaled: bool = True) -> Tensor:
        """Return a random input, another one for each call, of the parameters' dtype unless one is given.

        Args:
            scaled: of the trial's scale; else its numbers are around 1.
        """
        self._made += 1
        random = np.random.default_rng([self.values.salt, self._made])
        numbers = random.normal(size=shape) * (self.scale if scaled else 1.0)
        # in no direction in which a norm or a softmax stays as it is
        return Tensor(numbers + self.moved * random.normal(size=shape), dtype or self.values.low)

    def choices(self, rows: int, columns: int, of: int) -> Tensor:
        """Return rows of different whole numbers below `of`, one of which is in no row."""
        self._made += 1
        random = np.random.default_rng([self.values.salt, self._made])
        least = range(1, of) if of > columns else range(of)
        return Tensor(np.array([random.permutation(least)[:columns] for _ in range(rows)]), INT64)

    def expect(self, value: Tensor) -> Tensor:
        """Return a value that the code is expected to come by."""
        self.expected.append(value)
        return value

    def call(self, name: str, *arguments: Any) -> Tensor:
        """Return the result of a torch function that the code is expected to compute."""
        return self.expect(call(name, arguments, {}))

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Evaluate the expected values inside: their steps count as expected, and not as the code's."""
        values = self.values
        operations, made, steps = dict(values.operations), dict(values.made), len(values.trace)
        yield
        self.expected += [one for step in values.trace[steps:] for one in step.numbers]
        values.operations, values.made = operations, made
        del values.trace[steps:]


def varied(module: Module, **given: float) -> Module:
    """Return a module whose own numbers are others: a factor of 1 or a share of 0 in this config may be none in the
    next.

    Args:
        given: numbers that it has to have.
    """
    floats = {name: [one[0] * 1.3 + 0.11] for name, one in module.attributes.items() if isinstance(one[0], float)}
    numbers = {name: [number] for name, number in given.items()}
    return Module(module.class_name, {**module.attributes, **floats, **numbers}, cls=module.cls)


Comparison = Callable[[Trial], tuple[Any, Any]]
"""Result of the code, and the expected result."""


@dataclass(frozen=True)
class Difference:
    """Code that computes something else.

    Attributes:
        causes: (file:line, expression) of the operations without which it would not.
        first: the first operation that gives what is not expected, where no operation can be left out.
    """

    causes: tuple[tuple[str, str], ...] = ()
    first: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        """Return what a kernel would lose, or what is computed instead, with its lines."""
        listed = "; ".join(f"`{expression}` ({where})" for where, expression in self.causes)
        if listed:
            return f"{listed} would be lost"
        where, expression = self.first
        return f"the values part at `{expression}` ({where})" if expression else ""


def difference(compare: Comparison, scales: Sequence[float] = (1.0, 30.0), low: Dtype = LOW) -> Difference | None:
    """Return the difference of two pieces of code; None if they agree.

    Args:
        low: the dtype of parameters; float32 where it does not count in which places they round.

    Raises:
        Unsupported: one of them cannot be evaluated.
    """
    with np.errstate(all="ignore"):
        found = _disagreement(compare, scales, low)
        if found is None:
            return None
        trial, result = found
        causes = _causes(lambda nodes: _disagreement(compare, scales, low, nodes) is None, trial.values)
        return Difference(tuple(dict.fromkeys(causes)), _parting(trial, result))


def agree(compare: Comparison, scales: Sequence[float] = (1.0, 30.0), low: Dtype = LOW) -> bool:
    """Return whether two pieces of code compute the same, as `difference`.

    Raises:
        Unsupported: one of them cannot be evaluated.
    """
    with np.errstate(all="ignore"):
        return _disagreement(compare, scales, low) is None


def _disagreement(
    compare: Comparison, scales: Sequence[float], low: Dtype, left_out: Iterable[ast.AST] = ()
) -> tuple[Trial, Any] | None:
    """Return the first trial in which both do not agree, and what the code gives in it; None if there is none."""
    for trial in _trials(scales, low, frozenset(left_out)):
        found, wanted = compare(trial)
        if not same(found, wanted):
            return trial, found
    return None


def _trials(scales: Sequence[float], low: Dtype, nodes: frozenset[ast.AST]) -> Iterator[Trial]:
    for salt, scale in enumerate(scales):
        values = TensorValues(salt, nodes, low=low)
        yield Trial(values, scale)
        if values.constants:
            yield Trial(TensorValues(salt, nodes, values.constants, low), scale, _MOVE)
    yield Trial(TensorValues(len(scales), nodes, low=FLOAT32), scales[0])


def _parting(trial: Trial, result: Any) -> tuple[str, str]:
    """Return the first step on the way to a result that makes of what is expected what is not.

    A step is as expected where its numbers are among those of one expected value, whatever part of it they are, or
    where such a step takes them: other operations may lead to the same.
    """
    steps, made = trial.values.trace, trial.values.made
    wanted = [(one.dtype, np.sort(one.data, axis=None)) for one in trial.expected if one.dtype.is_floating_point]
    told = [[one for one in step.numbers if not _blank(one)] for step in steps]
    right = [all(_among(one, wanted) for one in several) for several in told]
    leading = {made[id(one)][0] for one in tensors_in(result) if id(one) in made}
    for place in reversed(range(len(steps))):
        for before in steps[place].before:
            right[before] |= right[place] and bool(told[place])
            leading |= {before} if place in leading else set()
    wrong = [at for at, step in enumerate(steps) if not right[at] and all(right[one] for one in step.before)]
    first = next((at for at in wrong if at in leading), wrong[0] if wrong else len(steps) - 1)
    return (steps[first].source.where(steps[first].node), ast.unparse(steps[first].node)) if steps else ("", "")


def _among(one: Tensor, wanted: Sequence[tuple[Dtype, Any]]) -> bool:
    """Return whether all numbers of a tensor are numbers of one expected value of its dtype."""
    return any(dtype == one.dtype and _holds(several, one.data.ravel()) for dtype, several in wanted)


def _blank(one: Tensor) -> bool:
    """Return whether a tensor tells nothing, as one of zeros that sums begin with."""
    return not one.data.size or bool(one.data.size > 1 and np.all(one.data == one.data.flat[0]))


def _holds(several: Any, numbers: Any) -> bool:
    if not several.size:
        return False
    after = np.searchsorted(several, numbers).clip(0, several.size - 1)
    nearest = np.minimum(abs(several[after] - numbers), abs(several[(after - 1).clip(0)] - numbers))
    return bool(np.all(nearest <= _TOLERANCE * max(float(np.max(np.abs(several))), 1e-12)))


def same(found: Any, wanted: Any) -> bool:
    """Return whether two results are equal: tensors in shape, dtype and numbers, collections in their parts."""
    if isinstance(wanted, list | tuple):
        fits = isinstance(found, list | tuple) and len(found) == len(wanted)
        return fits and all(same(one, other) for one, other in zip(found, wanted, strict=True))
    if not isinstance(found, Tensor) or not isinstance(wanted, Tensor):
        return bool(found == wanted)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    size = float(np.max(np.abs(wanted.data), initial=0.0))
    return bool(np.allclose(found.data, wanted.data, rtol=_TOLERANCE, atol=_TOLERANCE * max(size, 1e-12)))


def _causes(agree: Callable[..., bool], first: TensorValues) -> Iterable[tuple[str, str]]:
    """Return the operations that make the difference: one of them, or the fewest adjustments that do it together."""
    nodes = [node for node in first.operations if isinstance(node, ast.Call | ast.BinOp | ast.AugAssign)][:_MOST]
    kept: list[ast.AST] = []
    for node in nodes:
        agrees = _agrees_without(agree, [node])
        if agrees:
            return [_shown(first, node)]
        if agrees is not None and _adjusts(node):
            kept.append(node)
    fewest = (list(some) for count in (2, 3) for some in combinations(kept, count))
    together = next((some for some in islice(fewest, _MOST) if _agrees_without(agree, some)), kept)
    if together is kept and (not kept or not _agrees_without(agree, kept)):
        return []
    kept = together
    for one_of_them in list(kept):
        fewer = [one for one in kept if one is not one_of_them]
        kept = fewer if fewer and _agrees_without(agree, fewer) else kept
    return [_shown(first, node) for node in kept]


def _agrees_without(agree: Callable[..., bool], nodes: Sequence[ast.AST]) -> bool | None:
    """Return whether both agree when operations are left out; None if that cannot be evaluated."""
    try:
        return agree(nodes)
    except Unsupported:
        return None


def _adjusts(node: ast.AST) -> bool:
    """Return whether an operation changes one tensor: a method or function of one argument that may be a tensor."""
    if isinstance(node, ast.BinOp):
        return any(not isinstance(side, ast.Name | ast.Call | ast.Subscript) for side in (node.left, node.right))
    return isinstance(node, ast.AugAssign) or (isinstance(node, ast.Call) and not _multiplies(node))


def _multiplies(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in {"linear", "matmul", "bmm", "einsum", "index_add_", "index_add", "one_hot", "zeros_like"}


def _shown(values: TensorValues, node: ast.AST) -> tuple[str, str]:
    return values.operations[node].where(node), ast.unparse(node)
