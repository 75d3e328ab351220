"""Guidance of a pipeline: the denoiser outputs for a prompt and against it, and the formula that combines them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.denoising import denoiser_calls
from omni_kit.upstream.diffusers.pipelines import Pipeline


class Formula(StrEnum):
    """Combination of a pipeline's two outputs, by its scale s."""

    none = "none"  # there is one answer
    between = "negative + s (positive - negative)"
    beyond = "positive + s (positive - negative)"
    unread = "unread"


@dataclass(frozen=True)
class Guidance:
    """Classifier-free guidance of one pipeline.

    Attributes:
        formula: how two answers become one.
        scale: the argument of `__call__` that is s.
        renormed: what comes out has the norm of the positive answer, token by token.
        together: both answers come from one call, with twice the batch.
        negative_first: the negative half, or call, comes before the positive one.
        where: file:line of the formula.
    """

    formula: Formula
    scale: str = ""
    renormed: bool = False
    together: bool = False
    negative_first: bool = False
    where: str = ""


def guidance_of(pipeline: Pipeline) -> Guidance:
    """Read `__call__`."""
    found = pipeline.cls.method("__call__")
    if found is None:
        return Guidance(Formula.none)
    home, function = found
    calls = denoiser_calls(function, pipeline.denoiser.name)
    against = [_negative(ast.unparse(call)) for call in calls]
    pair = next(_pairs(function), None)
    together = not any(against)
    if together and pair is None:
        return Guidance(Formula.none)
    combined = next(_combinations(function), None)
    if combined is None:
        return Guidance(Formula.unread, together=together, where=home.source.where(function))
    node, formula, scale = combined
    return Guidance(
        formula, scale, _renormed(function, node.lineno), together,
        bool(pair) if together else against[0], home.source.where(node),
    )  # fmt: skip


def _negative(text: str) -> bool:
    return "negative" in text or "uncond" in text


def _pairs(function: ast.FunctionDef) -> Iterator[bool]:
    """For each place where a negative and a positive value are joined: whether the negative one comes first."""
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            parts = [node.left, node.right]
        elif isinstance(node, ast.List):
            parts = node.elts
        else:
            continue
        if len(parts) == 2 and all(isinstance(part, ast.Name) for part in parts):
            signs = [_negative(ast.unparse(part)) for part in parts]
            if sum(signs) == 1:
                yield signs[0]


def _combinations(function: ast.FunctionDef) -> Iterator[tuple[ast.Assign, Formula, str]]:
    """Yield assignments of `a + s * (b - c)` where `a` is one of `b` and `c`, and `s` is a scale."""
    for node in sorted((n for n in ast.walk(function) if isinstance(n, ast.Assign)), key=lambda n: n.lineno):
        if (found := _combined(node.value)) is not None:
            yield node, *found


def is_combination(value: ast.expr) -> bool:
    """Return whether a value is what guidance makes of two answers."""
    return _combined(value) is not None


def _combined(value: ast.expr) -> tuple[Formula, str] | None:
    """Formula and scale of `a + s * (b - c)`."""
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and isinstance(value.right, ast.BinOp)):
        return None
    product = value.right
    difference = product.right
    if not (isinstance(product.op, ast.Mult) and isinstance(difference, ast.BinOp)):
        return None
    if isinstance(difference.op, ast.Sub) and "scale" in (scale := ast.unparse(product.left)):
        start, positive, negative = (ast.unparse(one) for one in (value.left, difference.left, difference.right))
        if start in (positive, negative):
            formula = Formula.between if start == negative else Formula.beyond
            return formula, "true_cfg_scale" if "true_cfg" in scale else "guidance_scale"
    return None


def _renormed(function: ast.FunctionDef, line: int) -> bool:
    """Return whether what was combined is multiplied by one norm over another, unconditionally, along the last axis."""
    norms = {
        node.targets[0].id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and (dotted(node.value.func) or "").endswith("norm")
        and any(one.arg == "dim" and ast.unparse(one.value) == "-1" for one in node.value.keywords)
    }
    ratios = (
        node
        for node in ast.walk(function)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and node.lineno > line
    )
    return any({ast.unparse(node.left), ast.unparse(node.right)} <= norms for node in ratios)
