"""A function of the authors' around its loop: what stands before it and after it, and what is told by its latents."""

import ast
import copy
from collections.abc import Sequence

from omni_kit.pysource.eval import Unsupported

DEVICE = "device"
_BARS = ("tqdm", "trange")
_RANDOM = "rand"
_OF_NOISE = ("generator", "device", "dtype", "layout")


def is_random(body: Sequence[ast.AST]) -> bool:
    """Return whether statements draw noise."""
    return any(_RANDOM in _name(node) for one in body for node in ast.walk(one) if isinstance(node, ast.Call))


class NoiseAlone(ast.NodeTransformer):
    """Leaves out what noise is drawn with: a step is given its generator, and draws where its latents are."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Return the call of a random function without its generator, device and dtype."""
        self.generic_visit(node)
        if _RANDOM in _name(node):
            node.keywords = [one for one in node.keywords if one.arg not in _OF_NOISE]
        return node


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def apart(function: ast.FunctionDef, loop: ast.For) -> tuple[ast.For, tuple[list[ast.stmt], list[ast.stmt]]]:
    """Return a copy of the loop, and of the statements before it and after it.

    Raises:
        Unsupported: it stands inside of something.
    """
    place = list(ast.walk(function)).index(loop)
    whole = copy.deepcopy(function)
    own = list(ast.walk(whole))[place]
    found = _around(whole.body, own)
    if found is None or not isinstance(own, ast.For):
        raise Unsupported("is inside another statement")
    return own, found


def _around(body: list[ast.stmt], loop: ast.AST) -> tuple[list[ast.stmt], list[ast.stmt]] | None:
    for place, node in enumerate(body):
        if node is loop:
            return body[:place], body[place + 1 :]
        if isinstance(node, ast.With) and (inner := _around(node.body, loop)) is not None:
            return [*body[:place], *inner[0]], [*inner[1], *body[place + 1 :]]
    return None


def unwrapped(node: ast.expr) -> ast.expr:
    """Return the iterable of a loop without its progress bar."""
    name = _name(node) if isinstance(node, ast.Call) else ""
    if not isinstance(node, ast.Call) or not name.endswith(_BARS):
        return node
    return ast.Call(ast.Name("range", ast.Load()), node.args, []) if name == _BARS[1] else unwrapped(node.args[0])


class Placed(ast.NodeTransformer):
    """Name the device and dtype of latents without latents."""

    def __init__(self, latents: set[str]) -> None:
        self.latents = latents

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """`noise.device` is where a schedule is wanted; it is made in float32."""
        if isinstance(node.value, ast.Name) and node.value.id in self.latents:
            if node.attr == "device":
                return ast.Name(DEVICE, ast.Load())
            if node.attr == "dtype":
                return ast.Attribute(ast.Name("torch", ast.Load()), "float32", ast.Load())
        return self.generic_visit(node)
