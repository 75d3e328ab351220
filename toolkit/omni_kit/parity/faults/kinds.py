"""Kinds of faults: the places each fits, and the change it makes there."""

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from omni_kit.parity.faults.source import CodeSite, Form
from omni_kit.pysource.eval.python import OPERATORS

Undo = Callable[[], None]


class InapplicableFault:
    """Result of a fault that turns out, while running, not to apply."""


INAPPLICABLE = InapplicableFault()
_CHANGED = frozenset({"add", "sub", "mul", "truediv"})


@dataclass(frozen=True)
class CodeFault:
    """A line of code that does something else.

    Attributes:
        form: as what the line is taken apart: the two operands of an operation, a call, a value that is read, an
            argument of the function, what is returned, an expression and another version of it.
        fits: whether a site is one for this fault.
        wrong: the wrong value; is given the right one and then the parts: (left, right), (function, *arguments).
        other: of an expression, the wrong version.
    """

    name: str
    form: Form
    fits: Callable[[CodeSite], bool]
    wrong: Callable[..., Any]
    other: Callable[[ast.expr], ast.expr] | None = None


@dataclass(frozen=True)
class StateFault:
    """Something that a module holds and that is not what it should be.

    Attributes:
        fits: whether the module has what the fault changes.
        plant: changes it; returns what changes it back.
        stored: a checkpoint would show it.
        holders: the names, relative to the module, of the parts that hold what is changed; none for the module itself.
        everywhere: one such fault is in all modules of the model that it fits, as a wrong config brings it.
    """

    name: str
    fits: Callable[[nn.Module], bool]
    plant: Callable[[nn.Module], Undo]
    stored: bool = True
    holders: Callable[[nn.Module], tuple[str, ...]] = lambda module: ()
    everywhere: bool = False


Fault = CodeFault | StateFault


def operation(site: CodeSite) -> Callable[[Any, Any], Any] | None:
    """Return the operation of a binary site; None for one that no fault changes."""
    assert isinstance(site.node, ast.BinOp | ast.AugAssign)
    name = OPERATORS[type(site.node.op)]
    return getattr(operator, name) if name in _CHANGED else None


def operands(site: CodeSite) -> tuple[str, str]:
    """Return the two operands of a binary site, as text."""
    node = site.node
    if isinstance(node, ast.AugAssign):
        return ast.unparse(node.target), ast.unparse(node.value)
    assert isinstance(node, ast.BinOp)
    return ast.unparse(node.left), ast.unparse(node.right)


def combines(kind: type[ast.operator], left: str = "", right: str = "") -> Callable[[CodeSite], bool]:
    """Return whether a binary site is of that kind and its operands contain these patterns."""

    def fits(site: CodeSite) -> bool:
        assert isinstance(site.node, ast.BinOp | ast.AugAssign)
        first, second = operands(site)
        return isinstance(site.node.op, kind) and bool(re.search(left, first) and re.search(right, second))

    return fits


def calls(pattern: str) -> Callable[[CodeSite], bool]:
    """Return whether a call site calls something whose own name is this pattern, whole."""

    def fits(site: CodeSite) -> bool:
        assert isinstance(site.node, ast.Call)
        return re.fullmatch(pattern, _last_name(site.node.func)) is not None

    return fits


def takes(pattern: str, where: Callable[[nn.Module], bool] = lambda module: True) -> Callable[[CodeSite], bool]:
    """Return whether an argument of forward has a name of this pattern, whole."""

    def fits(site: CodeSite) -> bool:
        assert isinstance(site.node, ast.arg)
        in_forward = site.function.__name__ == "forward"
        return in_forward and re.fullmatch(pattern, site.node.arg) is not None and where(site.module)

    return fits


def reads(pattern: str, where: Callable[[CodeSite], bool] = lambda site: True) -> Callable[[CodeSite], bool]:
    """Return whether a value site reads an attribute of this name, whole."""

    def fits(site: CodeSite) -> bool:
        named = isinstance(site.node, ast.Attribute) and re.fullmatch(pattern, site.node.attr) is not None
        return named and where(site)

    return fits


def own_parameter(site: CodeSite) -> torch.Tensor | None:
    """Return the parameter of the module itself that a value site reads, if it reads one."""
    node = site.node
    mine = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return site.module._parameters.get(node.attr) if mine and isinstance(node, ast.Attribute) else None


def class_named(pattern: str) -> Callable[[nn.Module], bool]:
    """Return whether the class of a module has a name with this pattern."""
    return lambda module: re.search(pattern, type(module).__name__) is not None


def _last_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def has(*names: str) -> Callable[[nn.Module], bool]:
    """Return whether a module has parts of these names whose weights have one shape."""

    def fits(module: nn.Module) -> bool:
        shapes = [getattr(getattr(module, name, None), "weight", None) for name in names]
        return (
            all(isinstance(s, torch.Tensor) for s in shapes)
            and len({tuple(s.shape) for s in shapes if s is not None}) == 1
        )

    return fits


def parts(*names: str) -> Callable[[nn.Module], tuple[str, ...]]:
    """Return the parts of these names."""
    return lambda module: names


def set_to(changes: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> Undo:
    """Give tensors other values in place; return what gives them their own back."""
    pairs = list(changes)
    kept = [tensor.detach().clone() for tensor, _ in pairs]
    with torch.no_grad():
        for tensor, value in pairs:
            tensor.copy_(value.clone())

    def undo() -> None:
        with torch.no_grad():
            for (tensor, _), value in zip(pairs, kept, strict=True):
                tensor.copy_(value)

    return undo


def left_as_initialised(weight: torch.Tensor) -> torch.Tensor:
    """Return the weight as left without a checkpoint: small random numbers, the same each time."""
    drawn = torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
    return (0.02 * drawn).to(weight)


def set_attribute(module: nn.Module, name: str, value: Any) -> Undo:
    """Give a module another attribute; return what gives it its own back."""
    kept = getattr(module, name)
    setattr(module, name, value)
    return lambda: setattr(module, name, kept)
