"""What torch says of two definitions: whether they compute the same, forward and backward, and round alike."""

import ast
import copy
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

_CLOSE = 1e-5
_ROUNDED_OTHERWISE = 0.1
"""Share of numbers in bfloat16: another order of operations changes few of them, another place of rounding many."""
_LAST_PLACE = 2**-7
"""Of too few numbers for a share, as of one loss: another order of operations moves the last place alone."""


def definitions(module: str, nodes: Sequence[ast.ClassDef | ast.FunctionDef]) -> dict[str, Any]:
    """The names of a module of transformers, with these definitions in the place of its own."""
    names = dict(vars(importlib.import_module(module)))
    bare = [copy.deepcopy(node) for node in nodes]
    for node in bare:
        node.decorator_list = []
    tree = ast.fix_missing_locations(ast.Module([*bare], []))
    exec(compile(tree, "<mutant>", "exec"), names)
    return names


EXACT = (torch.float64,)
DTYPES = (*EXACT, torch.bfloat16)

Call = Callable[[dict[str, Any], torch.dtype], tuple[Any, list[torch.Tensor]]]
"""Calls what was defined; gives the outputs, and the tensors whose gradients count."""


def same(one: dict[str, Any], other: dict[str, Any], call: Call, dtypes: Sequence[torch.dtype] = DTYPES) -> bool | None:
    """Whether two sets of definitions compute the same; None where torch refuses one of them in every dtype."""
    ran = False
    for dtype in dtypes:
        try:
            expected = _results(call, one, dtype)
        except RuntimeError:  # upstream's own function refuses the dtype
            continue
        ran = True
        try:
            found = _results(call, other, dtype)
        except Exception:  # whatever it is, no release of upstream has such code
            return None
        if len(found) != len(expected):
            return False
        if not all(_agree(a, b, dtype) for a, b in zip(found, expected, strict=True)):
            return False
    return True if ran else None


def _results(call: Call, names: dict[str, Any], dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    found: list[torch.Tensor] = []
    for _ in range(2):
        outputs, leaves = call(names, dtype)
        tensors = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
        total = sum((one.double() * (1.3 + torch.arange(one.numel()).reshape(one.shape) % 3)).sum() for one in tensors)
        gradients = torch.autograd.grad(total, leaves, allow_unused=True) if isinstance(total, torch.Tensor) else []
        found += tensors
        if dtype == torch.float64:
            found += [torch.zeros(()) if one is None else one for one in gradients]
    return [one.detach() for one in found]


def _agree(found: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype) -> bool:
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    if dtype == torch.float64:
        size = float(wanted.abs().max()) if wanted.numel() else 0.0
        return bool(torch.allclose(found, wanted, rtol=_CLOSE, atol=_CLOSE * max(size, 1e-9), equal_nan=True))
    if found.numel() * _ROUNDED_OTHERWISE <= 1:
        return bool(torch.allclose(found.double(), wanted.double(), rtol=_LAST_PLACE, atol=0.0, equal_nan=True))
    return bool((found != wanted).double().mean() < _ROUNDED_OTHERWISE)


def tensor(dtype: torch.dtype, *shape: int, scale: float = 1.0) -> torch.Tensor:
    """Random numbers that gradients are taken of."""
    return (torch.randn(*shape, dtype=torch.float64) * scale).to(dtype).requires_grad_()


def filled(module: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """A module with random parameters of a dtype."""
    for parameter in module.parameters():
        parameter.data = torch.randn(parameter.shape, dtype=torch.float64).to(dtype) * 0.5
    return module.train()
