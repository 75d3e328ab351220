"""The statements of a function as lines that can be compared: what each says, sets and reads."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from omni_checkers.engine.files import remembered, walked
from omni_checkers.symbolic.spelling import plain
from omni_kit.pysource.source import dotted

OPERATORS = (ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
"""What a tree says by its type alone."""
# Nodes of a statement that is known again.
_LONG = 8
# The fields of each type of nodes in which two of them can say something else.
_SAYING: dict[type[ast.AST], tuple[str, ...]] = {
    kind: tuple(name for name in kind._fields if name not in {"ctx", "kind", "type_comment"})
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


@dataclass(eq=False)
class Line:
    """A statement without what is inside it: an assignment, or the head of a block.

    Attributes:
        kind: of the whole statement.
        block: the statements inside.
    """

    node: ast.AST
    number: int
    kind: type[ast.stmt]
    block: tuple[ast.stmt, ...] = ()

    @cached_property
    def inside(self) -> tuple[str, ...]:
        """The statements of the block, to be compared."""
        return tuple(map(code, self.block))

    @cached_property
    def code(self) -> str:
        """What the statement says, to be compared."""
        return code(self.node)

    @cached_property
    def text(self) -> str:
        """The statement as text, to be shown."""
        return said(self.node)

    @cached_property
    def long(self) -> bool:
        """Whether the statement says so much that it is known again wherever it stands."""
        return len(walked(self.node)) >= _LONG

    @cached_property
    def plain(self) -> ast.AST:
        """The statement in one spelling."""
        return plain(self.node)


@remembered
def lines_of(function: ast.FunctionDef) -> list[Line]:
    """The statements of a function, those inside others, too; what only speaks or raises is left out."""
    return list(_lines(function.body))


def _lines(body: Sequence[ast.stmt]) -> Iterator[Line]:
    for statement in _plain(body):
        match statement:
            case ast.Expr(ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Raise() | ast.Assert():
                continue
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name)))) if "log" in name or name == "warnings":
                continue
            case ast.FunctionDef() | ast.ClassDef():
                continue
            case ast.If() | ast.While():
                yield Line(statement.test, statement.lineno, type(statement), tuple(statement.body))
            case ast.For():
                head = ast.Tuple([statement.target, statement.iter], ast.Load())
                yield Line(head, statement.lineno, ast.For, tuple(statement.body))
            case ast.With() | ast.Try():
                pass
            case ast.AnnAssign(target, _, value) if value is not None:
                yield Line(ast.Assign([target], value, lineno=statement.lineno), statement.lineno, ast.Assign)
            case _:
                yield Line(statement, statement.lineno, type(statement))
        for field in ("body", "orelse", "finalbody"):
            yield from _lines(getattr(statement, field, []))


def _plain(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements; what is named only to be returned is returned."""
    returned = False
    for statement, after in zip_longest(body, body[1:]):
        match statement, after:
            case _ if returned:
                returned = False
            case ast.Assign([ast.Name(name)], value), ast.Return(ast.Name(other)) if name == other:
                returned = True
                yield ast.copy_location(ast.Return(value), statement)
            case _:
                yield statement


def written(node: ast.AST) -> set[str]:
    """The local names that a line sets, or changes by a method that ends in an underscore."""
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), method))) if method.endswith("_"):
            return {name}
        case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
            return {
                inner.id for inner in walked(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
            }
    return set()


def names_read(node: ast.AST) -> set[str]:
    """The local names whose values code takes."""
    found = {inner.id for inner in walked(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)}
    return found | (
        {node.target.id} if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) else set()
    )


def changed(node: ast.AST) -> str:
    """The name that a line makes of what it was before; "" for other lines, and for other views of the same values."""
    match node:
        case ast.AugAssign(ast.Name(name)):
            return name
        case ast.Assign([ast.Name(name)], value) if name in names_read(value):
            return name
    return ""


def depend(first: ast.AST, second: ast.AST) -> bool:
    """Whether two lines mean something else the other way round."""
    sets, reads = (written(first), written(second)), (names_read(first), names_read(second))
    return bool(sets[0] & reads[1] or sets[1] & reads[0] or sets[0] & sets[1])


@remembered
def said(node: ast.AST) -> str:
    """The text of a node, whatever its spacing."""
    return type(node).__name__ if isinstance(node, OPERATORS) else dotted(node) or ast.unparse(node)


@remembered
def code(node: ast.AST) -> str:
    """What two nodes share if they say the same. It is no Python, but for dotted names, and is made of that of its
    parts, which makes comparing many nodes cheaper than `said` does.
    """
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(inner, name):
            return f"{code(inner)}.{name}"
        case ast.Expr(value):
            return code(value)
    parts = node.__dict__
    return f"{type(node).__name__}({', '.join([_code_in(parts.get(name)) for name in _SAYING[type(node)]])})"


def _code_in(part: object) -> str:
    if isinstance(part, ast.AST):
        return code(part)
    return f"[{', '.join(map(_code_in, part))}]" if isinstance(part, list) else repr(part)


def spread(call: ast.Call) -> bool:
    """Whether a call is given arguments whose names cannot be read."""
    return any(one.arg is None for one in call.keywords) or any(isinstance(one, ast.Starred) for one in call.args)


def parameters(function: ast.FunctionDef) -> set[str]:
    """The names of the parameters of a function, without those for the rest."""
    arguments = function.args
    return {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
