"""Small questions to, and pieces of, concrete syntax."""

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import libcst as cst

from omni_kit.pysource.reads import field_read
from omni_kit.targets.diffusers.porting.visiting import walk

MARK = "TODO(omni-kit)"


@lru_cache(maxsize=2**13)
def code(node: cst.CSTNode) -> str:
    """Return the text of a node."""
    return cst.Module([]).code_for_node(node)


def argument_text(argument: cst.Arg) -> str:
    """Return the text of an argument, without the comma and the comment behind it."""
    none = cst.SimpleWhitespace("")
    return code(argument.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=none)).strip()


def statement(text: str) -> cst.BaseStatement:
    """Return one statement."""
    return cst.parse_statement(text)


def expression(text: str) -> cst.BaseExpression:
    """Return one expression; it may go over several lines."""
    return cst.parse_expression(f"({text})" if "\n" in text else text)


def field_in(node: cst.BaseExpression, holder: str) -> tuple[str, ast.expr | None] | None:
    """See `field_read`, of concrete syntax."""
    text = code(node)
    return field_read(ast.parse(f"({text})", mode="eval").body, holder) if holder in text else None


def body_of(node: cst.ClassDef | cst.FunctionDef) -> list[cst.BaseStatement]:
    """Return the statements of a class or a function, also where they stand on its own line."""
    if isinstance(node.body, cst.IndentedBlock):
        return list(node.body.body)
    return [cst.SimpleStatementLine([one]) for one in node.body.body if isinstance(one, cst.BaseSmallStatement)]


def with_body(node: cst.ClassDef, body: Sequence[cst.BaseStatement]) -> cst.ClassDef:
    """Return the class with other statements."""
    return node.with_changes(body=cst.IndentedBlock(list(body)))


def method(node: cst.ClassDef, name: str) -> cst.FunctionDef | None:
    """Return a method that the class itself has."""
    found = (one for one in body_of(node) if isinstance(one, cst.FunctionDef) and one.name.value == name)
    return next(found, None)


def with_method(node: cst.ClassDef, name: str, change: Callable[[cst.FunctionDef], cst.FunctionDef]) -> cst.ClassDef:
    """Return the class with one of its methods changed."""
    body = [
        change(one) if isinstance(one, cst.FunctionDef) and one.name.value == name else one for one in body_of(node)
    ]
    return with_body(node, body)


def ending(init: cst.FunctionDef, line: str) -> cst.FunctionDef:
    """Return a constructor with one more statement at its end, or after its base's where it may return before that."""
    body = body_of(init)
    returns = any(isinstance(one, cst.Return) for inner in body for one in _of_this_function(inner))
    based = (at for at, one in enumerate(body, 1) if code(one).strip().startswith("super("))
    at = next(based, 0) if returns else len(body)
    return init.with_changes(body=cst.IndentedBlock([*body[:at], statement(line), *body[at:]]))


def _of_this_function(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    if not isinstance(node, cst.FunctionDef | cst.Lambda | cst.ClassDef):
        for child in node.children:
            yield from _of_this_function(child)


def after_docstring(body: Sequence[cst.BaseStatement]) -> int:
    """Return the index of the first statement after the docstring."""
    first = body[0] if body else None
    if isinstance(first, cst.SimpleStatementLine) and isinstance(first.body[0], cst.Expr):
        return int(isinstance(first.body[0].value, cst.SimpleString | cst.ConcatenatedString))
    return 0


def parameters(function: cst.FunctionDef) -> list[cst.Param]:
    """Return a function's named parameters in order, without `self`."""
    given = function.params
    return [*given.posonly_params, *given.params, *given.kwonly_params][1:]


def names_used(node: cst.CSTNode) -> set[str]:
    """Return every name in a piece of code, also where it is only an attribute's or an argument's."""
    return {one.value for one in walk(node) if isinstance(one, cst.Name)}


def chain(node: cst.CSTNode) -> str:
    """`a.b.c` of a chain of names; empty for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute) and (base := chain(node.value)):
        return f"{base}.{node.attr.value}"
    return ""


def own_attribute(node: cst.CSTNode) -> str:
    """`x` of `self.x`; empty for anything else."""
    name = chain(node)
    return name.removeprefix("self.") if name.startswith("self.") and name.count(".") == 1 else ""


def marked(what: str) -> cst.EmptyLine:
    """A line that says what is left to do."""
    return cst.EmptyLine(comment=cst.Comment(f"# {MARK}: {what}"))


def with_mark(node: cst.CSTNode, what: str) -> cst.CSTNode:
    """A statement below a line that says what is left to do there."""
    lines = list(getattr(node, "leading_lines", ()))
    return node.with_changes(leading_lines=[*lines, marked(what)])


class Removal(cst.CSTTransformer):
    """A change that removes statements."""

    def leave_IndentedBlock(  # noqa: N802
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        """Return the block; with `pass` where nothing is left."""
        return updated_node if updated_node.body else updated_node.with_changes(body=[statement("pass")])


class Renamed(cst.CSTTransformer):
    """Gives names other names, wherever they stand for variables; attributes and arguments of calls stay."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:  # noqa: N802
        """Return the variable."""
        return updated_node.with_changes(value=self.names.get(updated_node.value, updated_node.value))

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:  # noqa: N802
        """Take back what was done to an attribute's own name."""
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802
        """Take back what was done to the name of an argument."""
        return updated_node.with_changes(keyword=original_node.keyword)
