"""Copied blocks: statements or arguments that say the same of two things, and a name that was not changed."""

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from omni_checkers.codediff.fingerprint import fingerprint, leaves, names_known
from omni_checkers.engine.files import remembered, within

_WORD = re.compile(r"[a-z]+|[A-Z][a-z]*|[0-9]+")
# Lines between two statements that are still read as a pair.
_NEAR = 40

Twin = ast.stmt | ast.keyword
"""Node that may have a twin."""


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
    """Yield names in a statement that are those of its twin, where all others are about another thing.

    Twins have one shape, and their names differ by one word: `image_mask` and `video_mask`. Two keyword arguments of
    one call may be twins, too. A name is forgotten where the function has the changed one, too, or where it is one of
    `members`, the names that objects of its file have.
    """
    known = {*members, *names_known(function), *(argument.arg for argument in within(function, ast.arg))}
    known |= {node.attr for node in within(function, ast.Attribute)}
    statements: list[Twin] = [*within(function, ast.Assign, ast.AugAssign, ast.Return)]
    groups: list[Sequence[Twin]] = [statements, *(call.keywords for call in within(function, ast.Call))]
    for group in groups:
        alike: defaultdict[tuple[str, ...], list[Twin]] = defaultdict(list)
        for node in group if len(group) > 1 else ():
            alike[_shape(node)].append(node)
        for nodes in alike.values():
            for first, second in combinations(sorted(nodes, key=lambda node: node.lineno), 2):
                if second.lineno - first.lineno <= _NEAR:
                    yield from _between(first, second, known)


def _between(first: Twin, second: Twin, known: set[str]) -> Iterator[Forgotten]:
    """Yield the name that was forgotten in one of two statements of one shape."""
    pairs = [(one, other) for one, other in zip(_names(second), _names(first), strict=True)]
    words = {_change(other, one) for one, other in pairs if one != other}
    if _crossed(first, second, words):
        theirs_name, ours_name = _target(first), _target(second)
        yield Forgotten(ours_name, theirs_name, second.lineno, first.lineno)
        return
    if len(words) != 1 or None in words or fingerprint(first) == fingerprint(second):
        return
    ((old, new),) = [word for word in words if word is not None]
    left = [one for one, other in pairs if one == other and old in _words(one)]
    wanted = [_with(one, old, new) for one in left]
    if len(left) == 1 and wanted[0] in known - {left[0]}:
        yield Forgotten(left[0], wanted[0], second.lineno, first.lineno)


def _crossed(first: Twin, second: Twin, words: set[tuple[str, str] | None]) -> bool:
    """Return whether each of two statements makes its own of what the other is about: `q_out = f(k)` and `k_out =
    f(q)`.
    """
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


@remembered
def _shape(node: ast.AST) -> tuple[str, ...]:
    """Return the key that nodes of one shape share."""
    return tuple([kind for kind, _ in leaves(node)])


def _names(node: ast.AST) -> list[str]:
    """Return the names in code, in order, and "" for all else."""
    return [name if kind != "Constant" else "" for kind, name in leaves(node)]


def _change(old: str, new: str) -> tuple[str, str] | None:
    """Return the one word by which two names differ; None if they differ by more."""
    one, other = _words(old), _words(new)
    differing = [(a, b) for a, b in zip(one, other, strict=False) if a != b]
    return differing[0] if len(one) == len(other) and len(set(differing)) == 1 else None


def _words(name: str) -> Sequence[str]:
    return _WORD.findall(name)


def _with(name: str, old: str, new: str) -> str:
    return re.sub(rf"(?<![a-z]){re.escape(old)}(?![a-z])", new, name)
