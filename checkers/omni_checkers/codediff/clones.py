"""Functions of several packages that are clones of each other, and statements in the same surroundings."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from omni_checkers.codediff.align import Statement, statements_of
from omni_checkers.codediff.fingerprint import size_of

# Of the statements of either, those that clones share; below this, two functions have no more than a habit in common.
_LIKE = 0.6
# Statements: shorter functions are alike by chance.
_LEAST = 4
# Nodes of the statements around one: shorter ones are alike by chance.
_AROUND_LEAST = 25
# Statements before and after the one that is looked at; there is always one before.
_AROUND = ((2, 1), (1, 2), (3, 0))


@dataclass(frozen=True, eq=False)
class Function:
    """A function or method, long enough to be compared.

    Attributes:
        home: the directory of its package.
        name: with that of its class.
    """

    home: Path
    file: Path
    name: str
    node: ast.FunctionDef

    @cached_property
    def statements(self) -> list[Statement]:
        """Its statements."""
        return statements_of(self.node)

    @cached_property
    def sequence(self) -> list[int]:
        """The fingerprints of its statements, in order."""
        return [one.code for one in self.statements]

    @cached_property
    def codes(self) -> frozenset[int]:
        """The fingerprints of its statements."""
        return frozenset(self.sequence)


def functions_of(tree: ast.Module | None, file: Path, home: Path) -> Iterator[Function]:
    """Yield the functions and methods of a file that are long enough to be compared."""
    for node in tree.body if tree is not None else ():
        for item in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(item, ast.FunctionDef) and len(statements_of(item)) >= _LEAST:
                name = f"{node.name}.{item.name}" if isinstance(node, ast.ClassDef) else item.name
                function = Function(home, file, name, item)
                if len(function.codes) >= _LEAST:
                    yield function


class CloneIndex:
    """Functions of packages, by what their statements say."""

    def __init__(self, functions: Sequence[Function]) -> None:
        self.functions = functions
        self._places: defaultdict[int, list[tuple[Function, int]]] = defaultdict(list)
        for function in functions:
            for place, code in enumerate(function.sequence):
                self._places[code].append((function, place))

    def has(self, code: int, home: Path) -> bool:
        """Return whether a package other than `home` has a statement."""
        return any(function.home != home for function, _ in self._places.get(code, ()))

    def clones(self, function: Function) -> list[Function]:
        """Return the functions of other packages that share most of the statements of this one."""
        shared: Counter[Function] = Counter()
        for code in dict.fromkeys(function.sequence):
            others = [other for other, _ in self._places.get(code, ()) if other.home != function.home]
            shared.update([*dict.fromkeys(others)])
        most = len(function.codes)
        return [other for other, count in shared.items() if count >= _LIKE * max(most, len(other.codes))]

    def in_place_of(self, function: Function, number: int) -> Iterator[tuple[Function, Statement]]:
        """Yield the statements of other packages that stand between the same statements as this one, where these are
        enough to recognise the place.
        """
        for before, after in _AROUND:
            start, end = number - before, number + 1 + after
            if start < 0 or end > len(function.sequence):
                continue
            near = [*function.sequence[start:number], *function.sequence[number + 1 : end]]
            found = self._places.get(near[0], ())
            around = [*function.statements[start:number], *function.statements[number + 1 : end]]
            if not found or sum(size_of(one.node) for one in around) < _AROUND_LEAST:
                continue
            for other, first in found:
                place = first + before
                theirs = [*other.sequence[first:place], *other.sequence[place + 1 : place + 1 + after]]
                if other.home != function.home and theirs == near and place < len(other.sequence):
                    yield other, other.statements[place]
