"""Whether code computes what something else computes: both are evaluated on the same numbers.

Equal numbers on random inputs of several magnitudes are taken for equal code: a clamp, a factor, a bias, an axis, an
order or a cast that one has and the other has not changes them. Gradients agree where the numbers still do after the
input moved while everything behind `detach` stayed.
"""

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, islice
from typing import Any

import numpy as np

from omni_kit.pysource.eval import Unreadable
from omni_kit.upstream.construction import Module
from omni_kit.upstream.torch.running import LOW, TensorValues
from omni_kit.upstream.torch.tensors import FLOAT32, INT64, Dtype, Tensor

_TOLERANCE = 1e-8
_MOVE = 0.01
_MOST = 80
"""How many evaluations are spent on what makes a difference."""


@dataclass
class Trial:
    """One evaluation, and the numbers that it starts from.

    Attributes:
        values: what evaluates.
        scale: how large inputs are.
        moved: how far inputs are from where they were at first.
    """

    values: TensorValues
    scale: float
    moved: float = 0.0
    _made: int = field(default=0)

    def tensor(self, *shape: int, dtype: Dtype | None = None, scaled: bool = True) -> Tensor:
        """A random input, another one for each call, of the parameters' dtype unless one is given.

        Args:
            scaled: of the trial's scale; else its numbers are around 1.
        """
        self._made += 1
        random = np.random.default_rng([self.values.salt, self._made])
        numbers = random.normal(size=shape) * (self.scale if scaled else 1.0)
        # in no direction in which a norm or a softmax stays as it is
        return Tensor(numbers + self.moved * random.normal(size=shape), dtype or self.values.low)

    def choices(self, rows: int, columns: int, of: int) -> Tensor:
        """Rows of different whole numbers below `of`, one of which is in no row."""
        self._made += 1
        random = np.random.default_rng([self.values.salt, self._made])
        least = range(1, of) if of > columns else range(of)
        return Tensor(np.array([random.permutation(least)[:columns] for _ in range(rows)]), INT64)


def varied(module: Module, **given: float) -> Module:
    """A module whose own numbers are others: a factor of 1 or a share of 0 in this config may be none in the next.

    Args:
        given: numbers that it has to have.
    """
    floats = {name: [one[0] * 1.3 + 0.11] for name, one in module.attributes.items() if isinstance(one[0], float)}
    numbers = {name: [number] for name, number in given.items()}
    return Module(module.class_name, {**module.attributes, **floats, **numbers}, cls=module.cls)


Comparison = Callable[[Trial], tuple[Any, Any]]
"""What code gives, and what it is compared with."""


@dataclass(frozen=True)
class Difference:
    """Code that computes something else.

    Attributes:
        causes: (file:line, expression) of the operations without which it would not.
        result: the last operation; what stands for the cause where no operation can be left out.
    """

    causes: tuple[tuple[str, str], ...] = ()
    result: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        """Return what a kernel would lose, or what is computed instead, with its lines."""
        listed = "; ".join(f"`{expression}` ({where})" for where, expression in self.causes)
        if listed:
            return f"{listed} would be lost"
        where, expression = self.result
        return f"the result is `{expression}` ({where})" if expression else ""


def difference(compare: Comparison, scales: Sequence[float] = (1.0, 30.0), low: Dtype = LOW) -> Difference | None:
    """What two pieces of code differ in; None where they agree.

    Args:
        low: the dtype of parameters; float32 where it does not count in which places they round.

    Raises:
        Unreadable: one of them cannot be evaluated.
    """
    with np.errstate(all="ignore"):
        first, everywhere = TensorValues(low=low), partial(_agree_everywhere, compare, scales, low)
        if _agree(compare, first, scales[0]) and everywhere():
            return None
        last = next(reversed(first.operations), None)
        return Difference(tuple(_causes(everywhere, first)), ("", "") if last is None else _shown(first, last))


def agree(compare: Comparison, scales: Sequence[float] = (1.0, 30.0), low: Dtype = LOW) -> bool:
    """Whether two pieces of code compute the same, as `difference`.

    Raises:
        Unreadable: one of them cannot be evaluated.
    """
    with np.errstate(all="ignore"):
        return _agree_everywhere(compare, scales, low)


def _agree_everywhere(
    compare: Comparison, scales: Sequence[float], low: Dtype, left_out: Iterable[ast.AST] = ()
) -> bool:
    nodes = frozenset(left_out)
    for salt, scale in enumerate(scales):
        values = TensorValues(salt, nodes, low=low)
        if not _agree(compare, values, scale):
            return False
        again = TensorValues(salt, nodes, values.constants, low)
        if values.constants and not _agree(compare, again, scale, _MOVE):
            return False
    return _agree(compare, TensorValues(len(scales), nodes, low=FLOAT32), scales[0])


def _agree(compare: Comparison, values: TensorValues, scale: float, moved: float = 0.0) -> bool:
    found, wanted = compare(Trial(values, scale, moved))
    return same(found, wanted)


def same(found: Any, wanted: Any) -> bool:
    """Whether two results are equal: tensors in shape, dtype and numbers, collections in their parts."""
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
    """The operations that make the difference: one of them, or the fewest adjustments that do it together."""
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
    """Whether both agree when operations are left out; None where that cannot be evaluated."""
    try:
        return agree(nodes)
    except Unreadable:
        return None


def _adjusts(node: ast.AST) -> bool:
    """Whether an operation changes one tensor: a method or function of one argument that may be a tensor."""
    if isinstance(node, ast.BinOp):
        return any(not isinstance(side, ast.Name | ast.Call | ast.Subscript) for side in (node.left, node.right))
    return isinstance(node, ast.AugAssign) or (isinstance(node, ast.Call) and not _multiplies(node))


def _multiplies(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in {"linear", "matmul", "bmm", "einsum", "index_add_", "index_add", "one_hot", "zeros_like"}


def _shown(values: TensorValues, node: ast.AST) -> tuple[str, str]:
    return values.operations[node].where(node), ast.unparse(node)
