"""Places where the authors compute attention, and the functions that do it."""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from omni_kit.pysource.source import dotted
from omni_kit.upstream.repositories.closure import Closure
from omni_kit.upstream.repositories.names import Defined, absolute

SDPA = "scaled_dot_product_attention"
WRITTEN = f"torch.nn.functional.{SDPA}"
_MODULE = "MultiheadAttention"
_KERNELS = ("flash_attn", "memory_efficient_attention", "sageattn", "flex_attention")
_PRODUCTS = ("einsum", "matmul", "bmm", "baddbmm")


@dataclass(frozen=True)
class Attending:
    """One place at which attention is computed.

    Attributes:
        definition: the class or the function that does it.
        function: the method, or the function itself.
        by: "scaled_dot_product_attention"; the absolute name of another kernel; "own" where it is written out.
        node: the call; of what is written out, that of softmax.
    """

    definition: Defined
    function: ast.FunctionDef
    by: str
    node: ast.Call

    @property
    def where(self) -> str:
        """file:line."""
        return self.definition.source.where(self.node)


def attending_in(closure: Closure) -> list[Attending]:
    """Return every place in what a class needs."""
    return [
        found
        for one in closure.definitions
        for function in functions_in(one)
        for found in _in(one, function, closure.uses[one])
    ]


def functions_in(one: Defined) -> list[ast.FunctionDef]:
    """Return the methods of a class; a function itself; nothing of a constant."""
    if isinstance(one.node, ast.FunctionDef):
        return [one.node]
    return [item for item in getattr(one.node, "body", []) if isinstance(item, ast.FunctionDef)]


def _in(one: Defined, function: ast.FunctionDef, uses: Collection[str]) -> Iterator[Attending]:
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    for call in calls:
        written = dotted(call.func) or ""
        name = absolute(one.source, call.func) if written not in uses else ""  # else it is defined here
        name = name or (written if written == WRITTEN else "")  # no import of theirs: it replaces their own products
        if name.endswith(SDPA):
            yield Attending(one, function, SDPA, call)
        elif name.endswith(_MODULE) or any(kernel in name for kernel in _KERNELS):
            yield Attending(one, function, name, call)
    if _multiplies(one, function) and (weighed := [call for call in calls if _last(call) == "softmax"]):
        yield Attending(one, function, "own", weighed[0])


def _multiplies(one: Defined, function: ast.FunctionDef) -> bool:
    """Return whether tensors are multiplied in a function, before and after something."""
    nodes = list(ast.walk(function))
    plain = sum(isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) for node in nodes)
    called = sum(isinstance(node, ast.Call) and _last(node) in _PRODUCTS for node in nodes)
    return plain + called >= 2


def _last(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
