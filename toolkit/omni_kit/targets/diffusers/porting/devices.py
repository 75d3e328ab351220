"""Code that runs on a CPU, of functions that choose by the device: extensions in C++ or CUDA are not ported."""

import ast

from omni_kit.targets.diffusers.porting.alternatives import reached
from omni_kit.targets.diffusers.porting.replaced_functions import changed_functions
from omni_kit.upstream.repositories.closure import Closure
from omni_kit.upstream.repositories.names import Defined, absolute

_COMPILER = "torch.utils.cpp_extension.load"


def compiled_at(one: Defined) -> str:
    """Return where a top-level statement compiles an extension in C++ or CUDA, also where there is a GPU alone; empty
    for anything else.
    """
    if not isinstance(one.node, ast.Assign | ast.If | ast.Try):
        return ""
    calls = [node for node in ast.walk(one.node) if isinstance(node, ast.Call)]
    found = (call for call in calls if absolute(one.source, call.func).startswith(_COMPILER))
    return next((one.source.where(call) for call in found), "")


def without_extensions(closure: Closure) -> Closure:
    """Return the closure with the branches that run on a CPU, if it compiles extensions and then needs none of them."""
    if not any(map(compiled_at, closure.definitions)):
        return closure

    def on_cpu(one: Defined, function: ast.FunctionDef) -> ast.FunctionDef | None:
        choice = _OnCpu()
        choice.visit(function)
        return function if choice.done else None

    found = reached(closure, changed_functions(closure.definitions, on_cpu))
    return closure if any(map(compiled_at, found.definitions)) else found


class Choosing(ast.NodeTransformer):
    """Keeps one branch of some conditions, and nothing after one that returns.

    Attributes:
        done: a branch was left out.
    """

    def __init__(self) -> None:
        self.done = False

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """See `ast.NodeTransformer`."""
        super().generic_visit(node)
        for field, body in ast.iter_fields(node):
            if self.done and isinstance(body, list):
                last = next((at for at, one in enumerate(body) if isinstance(one, ast.Return)), len(body))
                setattr(node, field, body[: last + 1])
        return node


class _OnCpu(Choosing):
    """Keeps the branch of an `if` that a tensor on a CPU takes."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Return one branch, where the test is of a device."""
        said = _on_cpu(node.test)
        self.generic_visit(node)
        if said is None:
            return node
        self.done = True
        return (node.body if said else node.orelse) or [ast.Pass()]

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Return one value, where the test is of a device."""
        said = _on_cpu(node.test)
        self.generic_visit(node)
        self.done = self.done or said is not None
        return node if said is None else node.body if said else node.orelse


def _on_cpu(test: ast.expr) -> bool | None:
    """Return the value of a test of a device for a tensor on a CPU; None of any other test."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return None if (said := _on_cpu(inner)) is None else not said
        case ast.Attribute(attr="is_cuda"):
            return False
        case ast.Compare(left=ast.Attribute(value=ast.Attribute(attr="device"), attr="type"), ops=[sign],
                         comparators=[ast.Constant(value=str(name))]):  # fmt: skip
            return (name == "cpu") == isinstance(sign, ast.Eq)
    return None
