"""Code that runs on a CPU, of functions that choose by the device: extensions in C++ or CUDA are not ported."""

import ast
from collections.abc import Collection, Iterable

from omni_kit.pysource.nodes import substituted
from omni_kit.targets.diffusers.porting.alternatives import reached, with_changed
from omni_kit.targets.diffusers.porting.replaced_functions import changed_functions
from omni_kit.upstream.repositories.closure import Closure
from omni_kit.upstream.repositories.gpu_facts import PROPERTIES, without_gpu
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


def without_properties(closure: Closure) -> Closure:
    """Return the closure with the branches of a machine without a GPU, of functions that choose by a GPU's properties:
    to ask for these raises there.
    """

    def unasked(one: Defined, function: ast.FunctionDef) -> ast.FunctionDef | None:
        choice = _Unasked(function)
        if choice.values:
            choice.visit(function)
        return function if choice.done else None

    return with_changed(closure, changed_functions(closure.definitions, unasked))


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


class _Unasked(Choosing):
    """Keeps the branches of a machine without a GPU where nothing but conditions reads its properties.

    Attributes:
        values: `id` of an `if` -> the value of its condition on such a machine.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        super().__init__()
        nodes = [*ast.walk(function)]
        self._names = {name for one in nodes if (name := _asking(one))}
        properties = dict.fromkeys(self._names, ast.parse(f"{PROPERTIES}(0)", mode="eval").body)
        tests = [(one, substituted(one.test, properties)) for one in nodes if isinstance(one, ast.If)]
        self.values = {id(one): value for one, test in tests if isinstance(value := without_gpu(test), bool)}
        inside = [part for one, _ in tests if id(one) in self.values for part in ast.walk(one.test)]
        if _reads(inside, self._names) != _reads(nodes, self._names) or not self._names:
            self.values = {}

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        """Leave out what asks for the properties."""
        return None if _asking(node) in self._names else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Return one branch, where properties choose it."""
        value = self.values.get(id(node))
        self.generic_visit(node)
        if value is None:
            return node
        self.done = True
        return (node.body if value else node.orelse) or [ast.Pass()]


def _asking(node: ast.AST) -> str:
    """Return the name to which a statement assigns the properties of a GPU; empty for any other."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or len(node.targets) != 1:
        return ""
    asks = ast.unparse(node.value.func) == PROPERTIES and isinstance(node.targets[0], ast.Name)
    return ast.unparse(node.targets[0]) if asks else ""


def _reads(nodes: Iterable[ast.AST], names: Collection[str]) -> int:
    return sum(isinstance(one, ast.Name) and one.id in names and isinstance(one.ctx, ast.Load) for one in nodes)


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
