"""Passing of latents to a pipeline's denoiser, processing of its output, and the conditions that change per step."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_kit.pysource.nodes import names_in
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.denoising import Denoising

_DEEPEST = 12


@dataclass(frozen=True)
class DenoiserInputs:
    """Processing of latents around a pipeline's denoiser.

    Attributes:
        unsqueezed: the axis added to latents before the call; 0 for none.
        halved: whether the pipeline drops half of an output with twice the channels.
        changing: the denoiser's arguments that depend on the step, except the step itself.
    """

    unsqueezed: int
    halved: bool
    changing: tuple[str, ...]


def denoiser_inputs_of(denoising: Denoising) -> DenoiserInputs:
    """Return how the pipeline's `__call__` passes latents."""
    found = denoising.pipeline.cls.method("__call__")
    if found is None or denoising.call is None:
        return DenoiserInputs(0, False, ())
    function, call = found[1], denoising.call
    loop = next((node for node in ast.walk(function) if _around(node, call)), None)
    value = denoising.handed.get(denoising.latents)
    axes = list(_unsqueezing(value, function, call.lineno)) if value is not None else []
    return DenoiserInputs(
        axes[0] if axes else 0,
        any(_half(node) for node in ast.walk(function)),
        tuple(_changing(denoising, loop)) if isinstance(loop, ast.For) else (),
    )


def _around(node: ast.AST, call: ast.Call) -> bool:
    return isinstance(node, ast.For) and any(inner is call for inner in ast.walk(node))


def _unsqueezing(value: ast.expr, function: ast.FunctionDef, line: int, depth: int = 0) -> Iterator[int]:
    """Yield the axes of `.unsqueeze(axis)` in an expression, and in what its names were last assigned."""
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unsqueeze":
            yield from (one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, int))
    for name in names_in(value) - {"latents"} if depth < _DEEPEST else ():
        if (last := _last(name, function, line)) is not None:
            yield from _unsqueezing(last.value, function, last.lineno, depth + 1)


def _last(name: str, function: ast.FunctionDef, line: int) -> ast.Assign | None:
    """Return the last assignment of a variable before a line."""
    found = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and dotted(node.targets[0]) == name]
    return max((node for node in found if node.lineno < line), key=lambda node: node.lineno, default=None)


def _half(node: ast.AST) -> bool:
    """`….chunk(2, dim=1)[0]`."""
    return isinstance(node, ast.Subscript) and ast.unparse(node).endswith(".chunk(2, dim=1)[0]")


def _changing(denoising: Denoising, loop: ast.For) -> Iterator[str]:
    """Yield arguments whose values come from the loop's variables."""
    held = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    line = denoising.call.lineno if denoising.call is not None else 0
    before = (node for node in ast.walk(loop) if isinstance(node, ast.Assign) and node.lineno < line)
    for node in sorted(before, key=lambda one: one.lineno):
        if names_in(node.value) & held:
            held |= {name for target in node.targets for name in _targets(target)}
    apart = (denoising.latents, denoising.step)
    yield from (name for name, value in denoising.handed.items() if name not in apart and names_in(value) & held)


def _targets(target: ast.expr) -> Iterator[str]:
    """Yield the variables that are assigned; attributes are none."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        yield from (name for item in target.elts for name in _targets(item))
