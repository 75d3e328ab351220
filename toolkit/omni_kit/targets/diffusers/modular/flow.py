"""Names that cross from one block to another: inputs and outputs of each block."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from omni_kit.pysource.names import Names, of_tree
from omni_kit.targets.diffusers.modular.dividing import Division, Part
from omni_kit.targets.diffusers.modular.names import tree


@dataclass(frozen=True)
class Passed:
    """Inputs and outputs of a block.

    Attributes:
        inputs: names that come from outside of it, in alphabetical order.
        outputs: names that later blocks ask for.
        absent: outputs that it assigns under a condition alone, and does not take.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    absent: tuple[str, ...] = ()


class Flow:
    """The names of one `__call__`.

    Attributes:
        arguments: what it takes.
        handed: names that its callbacks may ask for in the loop.
    """

    def __init__(self, division: Division, arguments: Sequence[str], handed: Sequence[str]) -> None:
        self._division = division
        self._arguments = frozenset(arguments)
        self._handed = frozenset(handed)

    @cached_property
    def _pieces(self) -> list[Names]:
        """Every piece of code that becomes a function of its own."""
        one = self._division
        last = of_tree(ast.parse("\n".join(one.answers.values())))
        after = Names(one.after.names.read | last.read, one.after.names.stored, *[frozenset[str]()] * 2)
        return [*(part.names for part in one.before), one.loop.around, *(part.names for part in one.loop.parts), after]

    @cached_property
    def local(self) -> frozenset[str]:
        """The names that are the function's own."""
        stored = frozenset(name for piece in self._pieces for name in piece.stored)
        return (stored | self._arguments) - frozenset(self._division.loop.targets)

    @cached_property
    def crossing(self) -> frozenset[str]:
        """The names that are kept in the state: more than one piece knows them, or a round passes them to the next."""
        found = set(self._arguments)
        for name in self.local:
            if sum(name in piece.all for piece in self._pieces) > 1:
                found.add(name)
        looped = self._division.loop.whole.all
        found |= {name for name in self._handed if name in looped & self.local}
        found |= {name for part in self._division.loop.parts for name in _carried(part) if name in self.local}
        return frozenset(found)

    def before(self, place: int) -> Passed:
        """Return the inputs and outputs of a part before the loop."""
        part = self._division.before[place]
        return self._passed(part.statements, part.names, self._read_behind(place + 1), self._known(place))

    def loop(self) -> Passed:
        """Return the inputs and outputs of the whole loop."""
        one = self._division
        return self._passed([one.loop.statement], one.loop.whole, self._last, self._known(len(one.before)))

    def around(self) -> tuple[str, ...]:
        """Return the inputs of the loop itself, without those of its blocks."""
        return self._taken(self._division.loop.around, self._known(len(self._division.before)))

    def round(self, part: Part) -> tuple[str, ...]:
        """Return the inputs of a loop block from outside of the loop."""
        return self._taken(part.names, self._known(len(self._division.before)))

    def after(self) -> Passed:
        """Return the inputs of the last part; its outputs are the results."""
        one = self._division
        names = Names(self._last, one.after.names.stored, *[frozenset[str]()] * 2)
        known = self._known(len(one.before)) | one.loop.whole.stored
        return Passed(self._taken(names, known), tuple(one.answers))

    @property
    def _last(self) -> frozenset[str]:
        return self._pieces[-1].read

    def _read_behind(self, place: int) -> frozenset[str]:
        """Return the names that pieces from a place on read."""
        return frozenset(name for piece in self._pieces[place:] for name in piece.read) | self._handed

    def _known(self, place: int) -> frozenset[str]:
        """Return the names that exist before a part: arguments, and assignments of earlier parts."""
        stored = (name for part in self._division.before[:place] for name in part.names.stored)
        return self._arguments | frozenset(stored)

    def _taken(self, names: Names, known: frozenset[str]) -> tuple[str, ...]:
        return tuple(sorted((names.read | (names.stored & known)) & known))

    def _passed(
        self, statements: Sequence[cst.BaseStatement], names: Names, behind: frozenset[str], known: frozenset[str]
    ) -> Passed:
        inputs = self._taken(names, known)
        outputs = sorted(names.stored & behind & self.local)
        certain = frozenset(inputs) | frozenset(name for one in statements for name in _certain(tree(one).body))
        return Passed(inputs, tuple(outputs), tuple(name for name in outputs if name not in certain))


def handed_to_callbacks(node: ast.expr | None) -> list[str]:
    """The names that a pipeline says its callbacks may ask for."""
    return [str(one.value) for one in getattr(node, "elts", ()) if isinstance(one, ast.Constant)]


def _certain(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield names that statements assign whatever happens."""
    for node in body:
        if isinstance(node, ast.If):
            branches = [frozenset(_certain(node.body)), frozenset(_certain(node.orelse))]
            yield from branches[0] & branches[1]
        elif isinstance(node, ast.With):
            yield from _certain(node.body)
        elif not isinstance(node, (ast.For, ast.While, ast.Try)):
            yield from of_tree(node).stored


def _carried(part: Part) -> Iterator[str]:
    """Yield names of a block of the loop that may hold what an earlier round assigned."""
    for name in part.names.stored:
        if not _set_first(name, [node for one in part.statements for node in tree(one).body]):
            yield name


def _set_first(name: str, body: Sequence[ast.stmt]) -> bool:
    """Return whether a name is always assigned before it is read, in statements that run one after the other."""
    touching = [node for node in body if name in of_tree(node).all]
    if not touching:
        return True
    first = touching[0]
    if isinstance(first, (ast.Assign, ast.AnnAssign)):
        return first.value is not None and name not in of_tree(first.value).read
    if isinstance(first, ast.For) and name in of_tree(first.target).stored and name not in of_tree(first.iter).read:
        return len(touching) == 1
    if len(touching) > 1 and name not in set(_certain([first])):
        return False
    inner = [getattr(first, field, []) for field in ("body", "orelse")]
    heads = [value for field, value in ast.iter_fields(first) if field in ("test", "iter", "items")]
    parts = [one for head in heads for one in (head if isinstance(head, list) else [head])]
    if any(name in of_tree(one).read for one in parts):
        return False
    return bool(inner[0]) and all(_set_first(name, one) for one in inner)
