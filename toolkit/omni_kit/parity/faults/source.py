"""The source code that a module runs as its own: its forward, with the methods and functions of the same file.

A place for a fault is one node of that code. Rewriting it changes the function's code object and nothing else, so
decorators, defaults and globals stay, and the change can be put in for one module of a class and taken out again.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import Any, Literal, TypeAlias

from torch import nn

AGENT = "__planted__"
_DESCRIPTIONS = frozenset({"dtype", "device", "shape", "ndim"})
Form = Literal["binary", "call", "value", "argument", "return", "expression"]
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class CodeSite:
    """One node in the code of one module.

    Attributes:
        name: the module's qualified name.
        index: the node's number in the walk of the function's tree.
    """

    module: nn.Module
    name: str
    function: FunctionType
    form: Form
    index: int
    node: ast.AST

    @property
    def line(self) -> int:
        """The line of the file that the site begins on."""
        return getattr(self.node, "lineno", 0)

    @property
    def text(self) -> str:
        """The site as Python writes it."""
        return ast.unparse(self.node)

    def covers(self, lines: set[int]) -> bool:
        """Return whether one of these lines of its file belongs to it; the arguments of a function are always there."""
        if self.form == "argument":
            return True
        return not lines.isdisjoint(range(self.line, getattr(self.node, "end_lineno", self.line) + 1))


def sites(name: str, module: nn.Module) -> Iterator[CodeSite]:
    """Yield every node of the module's own code at which something could go wrong; none for modules of torch itself."""
    for function in functions_of(module):
        asked = _asked_about(function)
        for index, node in enumerate(ast.walk(parsed(function))):
            for form in () if node in asked else _forms(node):
                yield CodeSite(module, name, function, form, index, node)


@cache
def _asked_about(function: FunctionType) -> frozenset[ast.AST]:
    """Return the nodes whose value does not matter: only whether there is one, or of which type and size."""
    found: list[ast.AST] = []
    for node in ast.walk(parsed(function)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
            found.append(node.left)
        elif isinstance(node, ast.Attribute) and node.attr in _DESCRIPTIONS:
            found.append(node.value)
    return frozenset(found)


def functions_of(module: nn.Module) -> list[FunctionType]:
    """Return its forward, and what that uses of the class and of the file, as far as the source can be had."""
    forward = inspect.unwrap(type(module).forward)
    if not isinstance(forward, FunctionType) or forward.__module__.partition(".")[0] == "torch":
        return []
    owner: Any = type(module)
    return _reachable(owner, forward)


@cache
def _reachable(owner: Any, forward: FunctionType) -> list[FunctionType]:
    found: list[FunctionType] = []
    waiting = [forward]
    while waiting:
        function = waiting.pop(0)
        if function not in found and _has_source(function) and function.__globals__ is forward.__globals__:
            found.append(function)
            waiting += [other for node in ast.walk(parsed(function)) for other in _named(owner, function, node)]
    return found


def _named(owner: type, function: FunctionType, node: ast.AST) -> Iterator[FunctionType]:
    """Yield the function that a name, or an attribute of self, stands for."""
    found: object = None
    if isinstance(node, ast.Name):
        found = function.__globals__.get(node.id)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        found = inspect.getattr_static(owner, node.attr, None)
    if isinstance(found, FunctionType):
        inner = inspect.unwrap(found)
        if isinstance(inner, FunctionType):
            yield inner


def _has_source(function: FunctionType) -> bool:
    with suppress(OSError, TypeError, SyntaxError, IndexError):
        return isinstance(parsed(function), Function)
    return False


@cache
def parsed(function: FunctionType) -> Function:
    """Return the function's tree, shared and therefore not to be changed."""
    return _parse(function)


def _parse(function: FunctionType) -> Function:
    """With the line numbers of its file and without decorators."""
    lines, start = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, max(start - 1, 0))
    definition = tree.body[0]
    if not isinstance(definition, Function):
        raise TypeError(f"{function.__qualname__} has no definition of its own")
    definition.decorator_list = []
    return definition


def _forms(node: ast.AST) -> Iterator[Form]:
    """Yield the forms that a node can be rewritten as."""
    if isinstance(node, ast.BinOp | ast.AugAssign):
        yield "binary"
    if isinstance(node, ast.BinOp):
        yield "expression"
    if isinstance(node, ast.Call):
        yield "call"
    if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
        yield "value"
    if isinstance(node, ast.arg):
        yield "argument"
    if isinstance(node, ast.Return) and node.value is not None:
        yield "return"


def rewritten(site: CodeSite, other: Callable[[ast.expr], ast.expr] | None = None) -> CodeType | None:
    """Return the code of the site's function in which the node asks the agent; None if that cannot be compiled alone.

    Args:
        other: for an expression, what to compute next to it.
    """
    own = _parse(site.function)
    target = next(node for index, node in enumerate(ast.walk(own)) if index == site.index)
    tree = _Rewriter(target, site.form, other).visit(own)
    assert isinstance(tree, Function)
    code = _compiled(tree, site.function)
    return code if code is not None and code.co_freevars == site.function.__code__.co_freevars else None


def _compiled(definition: Function, function: FunctionType) -> CodeType | None:
    """Compiled below a function that has the same names to close over."""
    free = function.__code__.co_freevars
    around: list[ast.stmt] = [ast.parse(f"{name} = None").body[0] for name in free]
    outer = ast.parse("def around(): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body = [*around, definition]
    module = ast.fix_missing_locations(ast.Module(body=[outer], type_ignores=[]))
    outer_code = next(c for c in compile(module, function.__code__.co_filename, "exec").co_consts if _is_code(c))
    return next((c for c in outer_code.co_consts if _is_code(c) and c.co_name == definition.name), None)


def _is_code(constant: object) -> bool:
    return isinstance(constant, CodeType)


class _Rewriter(ast.NodeTransformer):
    """Puts a call of the agent instead of one node."""

    def __init__(self, target: ast.AST, form: Form, other: Callable[[ast.expr], ast.expr] | None) -> None:
        self._target = target
        self._form = form
        self._other = other

    def visit(self, node: ast.AST) -> ast.AST:
        if self._form == "argument" and isinstance(node, Function) and self._target in ast.walk(node.args):
            assert isinstance(self._target, ast.arg)
            node.body.insert(_after_docstring(node), _assigned(self._target.arg))
            return node
        return self._asking(node) if node is self._target else self.generic_visit(node)

    def _asking(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.AugAssign):
            current = ast.parse(ast.unparse(node.target), mode="eval").body
            return ast.copy_location(ast.Assign([node.target], _ask(current, node.value)), node)
        if isinstance(node, ast.Return):
            assert node.value is not None
            return ast.copy_location(ast.Return(_ask(node.value)), node)
        assert isinstance(node, ast.expr)
        if self._form == "expression" and self._other is not None:
            return ast.copy_location(_ask(node, self._other(node)), node)
        if isinstance(node, ast.BinOp):
            return ast.copy_location(_ask(node.left, node.right), node)
        if isinstance(node, ast.Call):
            asked = ast.Call(ast.Name(AGENT, ast.Load()), [node.func, *node.args], node.keywords)
            return ast.copy_location(asked, node)
        return ast.copy_location(_ask(node), node)


def _ask(*operands: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(AGENT, ast.Load()), list(operands), [])


def _assigned(argument: str) -> ast.stmt:
    return ast.parse(f"{argument} = {AGENT}({argument})").body[0]


def _after_docstring(function: Function) -> int:
    return int(ast.get_docstring(function, clean=False) is not None)
