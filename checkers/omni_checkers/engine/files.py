"""Parsed files: one parse and one walk each."""

import ast
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from omni_kit.pysource.source import parse_file

Node = TypeVar("Node", bound=ast.AST)
Answer = TypeVar("Answer")
_LEAVES = (ast.Constant, ast.Global, ast.MatchSingleton, ast.Nonlocal)
# Fields that hold names, numbers and contexts.
_PLAIN = frozenset(
    {"arg", "asname", "attr", "conversion", "ctx", "id", "is_async", "kind", "kwd_attrs", "level", "module", "name"}
    | {"rest", "simple", "tag", "type_comment"}
)
# The fields of each type of nodes that hold nodes.
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    kind: tuple(name for name in kind._fields if name not in _PLAIN and not issubclass(kind, _LEAVES))
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


def remembered(function: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
    """A function of one node, asked once for each: the answer is kept on the node, and goes with it."""
    key = f"_{function.__module__}.{function.__name__}"

    @wraps(function)
    def asked(node: ast.AST) -> Answer:
        answers = node.__dict__
        if key not in answers:
            answers[key] = function(node)
        answer: Answer = answers[key]
        return answer

    return asked


def rebuilt(node: Node, instead: Callable[[ast.AST], ast.AST | None] = lambda _: None) -> Node:
    """A copy of a tree, without what is remembered about it.

    Args:
        instead: what stands in the place of a node; None for a copy of it.
    """
    return cast("Node", _rebuilt(node, instead))


def _rebuilt(part: Any, instead: Callable[[ast.AST], ast.AST | None]) -> Any:
    if isinstance(part, list):
        return [_rebuilt(one, instead) for one in part]
    if not isinstance(part, ast.AST):
        return part
    other = instead(part)
    if other is not None:
        return other
    made = type(part)(**{name: _rebuilt(getattr(part, name, None), instead) for name in part._fields})
    return ast.copy_location(made, part)


def walked(node: ast.AST) -> list[ast.AST]:
    """A node and all below it, in the order of `ast.walk`, without the contexts of names; see `_below`."""
    return [node, *_below(node)]


@remembered
def _below(node: ast.AST) -> list[ast.AST]:
    """All below a node, and not itself: a circle would never be freed. Many rules look at the same functions."""
    found = [node]
    for item in found:  # it grows on the way
        parts = item.__dict__
        for name in _FIELDS[type(item)]:
            value = parts.get(name)
            if type(value) is list:
                found += value if None not in value else [inner for inner in value if inner is not None]
            elif value is not None:
                found.append(value)
    return found[1:]


def within(node: ast.AST, *kinds: type[Node]) -> Iterator[Node]:
    """The nodes of these types, of a node and all below it: type by type, each in the order of `walked`."""
    for kind in kinds:
        if type(node) is kind:
            yield node
        yield from _by_type(node).get(kind, ())  # type: ignore[misc]


@remembered
def _by_type(node: ast.AST) -> dict[type[ast.AST], list[ast.AST]]:
    """All below a node, by type."""
    found: dict[type[ast.AST], list[ast.AST]] = {}
    for inner in _below(node):
        found.setdefault(type(inner), []).append(inner)
    return found


@dataclass(eq=False)
class File:
    """One Python file of a model.

    Attributes:
        tree: None when the file is not valid Python; `error` says why.
    """

    path: Path
    text: str
    tree: ast.Module | None
    error: SyntaxError | None = None

    def nodes(self, *kinds: type[Node]) -> Iterator[Node]:
        """All nodes of these types; the file is walked once, however often it is asked."""
        return within(self.tree, *kinds) if self.tree is not None else iter(())

    def segment(self, node: ast.expr) -> str:
        """The text of an expression."""
        return ast.get_source_segment(self.text, node) or ast.unparse(node)

    @cached_property
    def depth(self) -> tuple[int, int]:
        """How deeply the deepest code is nested, in nodes of the tree, and the line where that is."""
        deepest, line = 0, 1
        todo: list[tuple[ast.AST, int, int]] = [(self.tree, 0, 1)] if self.tree is not None else []
        while todo:
            node, depth, above = todo.pop()
            here = getattr(node, "lineno", above)
            if depth > deepest:
                deepest, line = depth, here
            todo += [(child, depth + 1, here) for child in ast.iter_child_nodes(node)]
        return deepest, line


def read_file(path: Path) -> File:
    """Reads and parses a file, in the encoding that it names; what is not valid Python, or no text, has no tree."""
    try:
        text, tree = parse_file(path)
        error = _refused(tree)
        return File(path, text, tree if error is None else None, error)
    except SyntaxError as why:
        return File(path, path.read_text(encoding="utf-8", errors="replace"), None, why)
    except (OSError, UnicodeDecodeError) as why:
        return File(path, "", None, SyntaxError(str(why)))


@remembered
def _refused(tree: ast.Module) -> SyntaxError | None:
    """Why Python does not compile what it can parse, such as `return` outside a function; nothing is run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, "<checked>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError):
        return SyntaxError("nested too deeply to be compiled")
    return None


def same_code(one: object, two: object) -> bool:
    """Whether two trees, or lists of trees, are the same code; positions and the spacing of docstrings do not count."""
    kind = type(one)
    if kind is not type(two):
        return False
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(same_code, one, two))
    if kind not in _FIELDS:
        return one == two
    if kind is ast.Expr:
        match one, two:
            case ast.Expr(ast.Constant(str(mine))), ast.Expr(ast.Constant(str(theirs))):
                return mine.split() == theirs.split()
    here, there = one.__dict__, two.__dict__
    for name in kind._fields:
        own, other = here.get(name), there.get(name)
        if own is not other and not same_code(own, other):  # names and contexts are one object, mostly
            return False
    return True


def same_statement(one: ast.stmt, lines: Sequence[str], two: ast.stmt, other_lines: Sequence[str]) -> bool:
    """`same_code` of statements, by their lines where these already say so, or those of the statements inside."""
    if type(one) is not type(two):
        return False
    if one.col_offset == two.col_offset and _rows(one, lines) == _rows(two, other_lines):
        return True
    if not hasattr(one, "body"):
        return same_code(one, two)
    for name in one._fields:
        mine, theirs = getattr(one, name, None), getattr(two, name, None)
        if isinstance(mine, list) and isinstance(theirs, list) and mine and isinstance(mine[0], ast.stmt):
            pairs = zip(mine, theirs, strict=False)
            same = len(mine) == len(theirs) and all(same_statement(a, lines, b, other_lines) for a, b in pairs)
        else:
            same = same_code(mine, theirs)
        if not same:
            return False
    return True


def _rows(node: ast.stmt, lines: Sequence[str]) -> Sequence[str]:
    first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
    return lines[first - 1 : node.end_lineno]
