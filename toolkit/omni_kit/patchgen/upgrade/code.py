"""One definition as text and syntax tree: dumps, comments, names that statements read and write."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from omni_kit.patchgen.source import DefinitionNode
from omni_kit.patchgen.spans import Source, first_line, shift
from omni_kit.pysource.nodes import without_docstring

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
LONG = 2000  # characters of a computation that is written out
_WORD = re.compile(r"\w+")
_NAMES = re.compile(r"((?:id|attr|arg)=)'\w+'")


class Code(Source):
    """A definition cut out of its file, dedented; its text begins at `def` or `class`."""

    def __init__(self, text: str) -> None:
        super().__init__(text if text.endswith("\n") else f"{text}\n")

    @cached_property
    def node(self) -> DefinitionNode:
        """The definition."""
        node = ast.parse(self.text).body[0]
        assert isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        return node

    def first_line_of(self, node: ast.stmt) -> int:
        """Return the first line of a statement, with its decorators and the comments right above it."""
        line = first_line(node)
        while line > 1 and self._is_comment(line - 1, node.col_offset):
            line -= 1
        return line

    def comments_of(self, node: ast.stmt) -> str:
        """Return the comment lines above a statement, dedented."""
        first = self.first_line_of(node)
        last = first_line(node) - 1
        return shift(self.rows(first, last), node.col_offset, 0) if first <= last else ""

    def statement(self, node: ast.stmt, column: int) -> str:
        """Return the lines of a statement with the comments above it, indented for another block."""
        return shift(self.rows(self.first_line_of(node), node.end_lineno or node.lineno), node.col_offset, column)

    def _is_comment(self, line: int, column: int) -> bool:
        text = self.lines[line - 1]
        return text.strip().startswith("#") and len(text) - len(text.lstrip()) == column


def dump(node: ast.AST | None) -> str:
    """Return the syntax tree of a node as text, without positions; remembered by the node."""
    if node is None:
        return ""
    known: Any = node
    if not hasattr(known, "_dumped"):
        known._dumped = ast.dump(node)
    return str(known._dumped)


def dumps(nodes: Sequence[ast.AST]) -> list[str]:
    """Return the dumps of several nodes."""
    return [dump(node) for node in nodes]


def likeness(one: ast.AST, other: ast.AST) -> float:
    """Return the similarity of two nodes, from 0 to 1: by words of their dumps, or by form if names changed."""
    if dump(one) == dump(other):
        return 1.0
    words = _common(_words(one), _words(other))
    forms = _common(_forms(one), _forms(other)) if type(one) is type(other) else 0.0
    return max(words, 0.8 * forms)


def _common(one: "Counter[str]", other: "Counter[str]") -> float:
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 1.0


def _words(node: Any) -> "Counter[str]":
    if not hasattr(node, "_counted"):
        node._counted = Counter(_WORD.findall(dump(node)))
    counted: Counter[str] = node._counted
    return counted


def _forms(node: Any) -> "Counter[str]":
    if not hasattr(node, "_formed"):
        node._formed = Counter(_WORD.findall(_NAMES.sub(r"\1_", dump(node))))
    counted: Counter[str] = node._formed
    return counted


def size(node: ast.AST) -> int:
    """Return the number of an expression's nodes, without contexts and operators."""
    return sum(not isinstance(inner, (ast.expr_context, ast.operator)) for inner in ast.walk(node))


def read(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the names that code reads."""
    found = _named(nodes, ast.Load)
    return found | {root for node in nodes for root in _updated(node)}


def written(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the names that code binds, or whose parts it changes; a bare call may change all that it is given."""
    found = _named(nodes, (ast.Store, ast.Del)) | {root for node in nodes for root in _updated(node)}
    bare = [node for top in nodes for node in ast.walk(top) if isinstance(node, ast.Expr)]
    return found | _named([node for node in bare if isinstance(node.value, ast.Call)], ast.Load)


def stored(node: ast.AST) -> set[str]:
    """Return the local names that a definition binds, its parameters and inner definitions included."""
    found = _named([node], (ast.Store, ast.Del))
    for inner in ast.walk(node):
        if isinstance(inner, ast.arg):
            found.add(inner.arg)
        elif isinstance(inner, ast.ExceptHandler) and inner.name:
            found.add(inner.name)
        elif isinstance(inner, (ast.Import, ast.ImportFrom)):
            found |= {(one.asname or one.name).partition(".")[0] for one in inner.names}
        elif inner is not node and isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(inner.name)
    return found


def _named(nodes: Sequence[ast.AST], context: Any) -> set[str]:
    return {
        inner.id
        for node in nodes
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, context)
    }


def _updated(node: ast.AST) -> Iterator[str]:
    """Roots of `x.y = ...`, `x[i] = ...` and `x += ...`."""
    for inner in ast.walk(node):
        match inner:
            case ast.AugAssign(target=ast.Name(id=name)):
                yield name
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                root: ast.expr = inner
                while isinstance(root, (ast.Attribute, ast.Subscript)):
                    root = root.value
                if isinstance(root, ast.Name):
                    yield root.id


def written_out(value: ast.expr, values: Mapping[str, ast.expr]) -> ast.expr:
    """Return an expression with its locals replaced by their values; a name for one that is too long."""

    class Writer(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return values.get(node.id, node) if isinstance(node.ctx, ast.Load) else node

    text = ast.unparse(value)
    if len(text) > LONG:
        return ast.Name("...", ast.Load())
    copy: ast.expr = ast.parse(text, mode="eval").body
    written: ast.expr = Writer().visit(copy)
    return written


def meaning(text: str) -> str:
    """Return the syntax tree of a definition without its name, docstrings and annotations."""
    node = Code(text).node
    for one in ast.walk(node):
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            one.body = without_docstring(one.body) or [ast.Pass()]
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)):
            one.returns = None
        if isinstance(one, ast.arg):
            one.annotation = None
    node.name = ""
    node.decorator_list = []
    return ast.dump(node)
