"""Pairs of statements or arguments that say the same of two things, and a word that was forgotten in a copy."""

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from omni_checkers.engine.files import remembered, walked, within
from omni_checkers.symbolic.lines import code

_WORD = re.compile(r"[a-z]+|[A-Z][a-z]*|[0-9]+")
# Lines between two statements that are still read as a pair.
_NEAR = 40

Twin = ast.stmt | ast.keyword
"""What may have a twin."""


@dataclass(frozen=True)
class Forgotten:
    """A name that was not changed with the others.

    Attributes:
        name: as it stands there; `wanted` is what its like suggests.
        line: of the statement; `like` is the line of the other.
    """

    name: str
    wanted: str
    line: int
    like: int


def forgotten(function: ast.FunctionDef, members: Collection[str] = ()) -> Iterator[Forgotten]:
    """Names in a statement that are those of its twin, where all others are about another thing.

    Twins have one shape, and their names differ by one word: `image_mask` and `video_mask`. Two keyword arguments of
    one call may be twins, too. A name is forgotten where the function has the changed one, too, or where it is one of
    `members`, the names that objects of its file have.
    """
    known = {node.id for node in walked(function) if isinstance(node, ast.Name)}
    known |= {node.attr for node in within(function, ast.Attribute)}
    known |= set(members)
    known |= {argument.arg for argument in walked(function) if isinstance(argument, ast.arg)}
    statements = [node for node in walked(function) if isinstance(node, (ast.Assign, ast.AugAssign, ast.Return))]
    statements.sort(key=lambda node: node.lineno)
    shapes = [_kinds(node) for node in statements]
    for number, first in enumerate(statements):
        for place, second in enumerate(statements[number + 1 :], number + 1):
            if second.lineno - first.lineno > _NEAR:
                break
            if shapes[number] == shapes[place]:
                yield from _between(first, second, known)
    for call in within(function, ast.Call):
        for one, other in combinations(call.keywords, 2):
            if _kinds(one) == _kinds(other):
                yield from _between(one, other, known)


def undivided(function: ast.FunctionDef) -> Iterator[tuple[ast.Assign, ast.Assign]]:
    """A name that both branches of a condition set to the same, where another name that both set is set to another.

    Judged are branches that hand names out: every name that both set is set to a name or an attribute.
    """
    for node in walked(function):
        if isinstance(node, ast.If) and node.orelse:
            one, other = _handed(node.body), _handed(node.orelse)
            both = [name for name in one if name in other]
            plain = all(
                isinstance(found[name].value, (ast.Name, ast.Attribute)) for found in (one, other) for name in both
            )
            same = [name for name in both if code(one[name].value) == code(other[name].value)]
            if plain and len(same) == 1 < len(both):
                yield one[same[0]], other[same[0]]


def _handed(body: Sequence[ast.stmt]) -> dict[str, ast.Assign]:
    return {name: node for node in body if isinstance(node, ast.Assign) and (name := _target(node))}


def _between(first: Twin, second: Twin, known: set[str]) -> Iterator[Forgotten]:
    """The name that was forgotten in one of two statements of one shape."""
    pairs = [(one, other) for (_, one), (_, other) in zip(_leaves(second), _leaves(first), strict=True)]
    words = {_change(other, one) for one, other in pairs if one != other}
    if _crossed(first, second, words):
        theirs_name, ours_name = _target(first), _target(second)
        yield Forgotten(ours_name, theirs_name, second.lineno, first.lineno)
        return
    if len(words) != 1 or None in words or code(first) == code(second):
        return
    ((old, new),) = [word for word in words if word is not None]
    left = [one for one, other in pairs if one == other and old in _words(one)]
    wanted = [_with(one, old, new) for one in left]
    if len(left) == 1 and wanted[0] in known - {left[0]}:
        yield Forgotten(left[0], wanted[0], second.lineno, first.lineno)


def _crossed(first: Twin, second: Twin, words: set[tuple[str, str] | None]) -> bool:
    """Whether each of two statements makes its own of what the other is about: `q_out = f(k)` and `k_out = f(q)`."""
    if len(words) != 2 or None in words:
        return False
    one, other = (word for word in words if word is not None)
    targets = _target(first), _target(second)
    calls = all(isinstance(getattr(node, "value", None), ast.Call) for node in (first, second))
    return calls and one == other[::-1] and all(targets) and _change(*targets) in (one, other)


def _target(node: Twin) -> str:
    match node:
        case ast.Assign([ast.Name(name)]):
            return name
    return ""


def _kinds(node: ast.AST) -> tuple[str, ...]:
    return tuple(kind for kind, _ in _leaves(node))


@remembered
def _leaves(node: ast.AST) -> list[tuple[str, str]]:
    """What a statement is made of, in order: kinds of nodes, and names."""
    return list(_parts(node))


def _parts(node: ast.AST) -> Iterator[tuple[str, str]]:
    for inner in walked(node):
        match inner:
            case ast.Name(name):
                yield "name", name
            case ast.Attribute(_, name):
                yield "attribute", name
            case ast.keyword(name):
                yield "keyword", name or "**"
            case ast.Constant():
                yield "constant", ""
            case ast.Load() | ast.Store():
                pass
            case _:
                yield type(inner).__name__, ""


def _change(old: str, new: str) -> tuple[str, str] | None:
    """The one word by which two names differ; None where they differ by more."""
    one, other = _words(old), _words(new)
    differing = [(a, b) for a, b in zip(one, other, strict=False) if a != b]
    return differing[0] if len(one) == len(other) and len(set(differing)) == 1 else None


def _words(name: str) -> Sequence[str]:
    return _WORD.findall(name)


def _with(name: str, old: str, new: str) -> str:
    return re.sub(rf"(?<![a-z]){re.escape(old)}(?![a-z])", new, name)
