"""Where copied code says something else than what it was copied from, by one small thing, or leaves a line out."""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import pairwise, product

from omni_checkers.engine.files import walked
from omni_checkers.symbolic.arrangement import rearranged
from omni_checkers.symbolic.differences import Difference, differences
from omni_checkers.symbolic.lines import Line, changed, code, depend, lines_of, names_read, parameters, written

# In one statement: more small things than these were meant.
_FEW = 3
# Lines that are left out together: more were left out on purpose.
_BLOCK = 3
_SHOWN = 90
_STEPS, _HALVES = "every second element", "halves"


@dataclass(frozen=True)
class Copy:
    """A function, and the one that it was copied from."""

    ours: ast.FunctionDef
    theirs: ast.FunctionDef

    @cached_property
    def mine(self) -> list[Line]:
        """The lines of the copy."""
        return lines_of(self.ours)

    @cached_property
    def original(self) -> list[Line]:
        """The lines of the original."""
        return lines_of(self.theirs)

    @cached_property
    def _mine(self) -> list[str]:
        return [line.code for line in self.mine]

    @cached_property
    def _originals(self) -> list[str]:
        return [line.code for line in self.original]

    @cached_property
    def likeness(self) -> float:
        """How much of the original the copy still has, from 0 to 1."""
        same = sum(last - first for tag, first, last, _, _ in self._blocks if tag == "equal")
        return same / max(1, len(self.original))

    @cached_property
    def _blocks(self) -> Sequence[tuple[str, int, int, int, int]]:
        return SequenceMatcher(None, self._mine, self._originals, autojunk=False).get_opcodes()

    @cached_property
    def _codes(self) -> tuple[set[str], set[str]]:
        return set(self._mine), set(self._originals)

    def altered(self) -> Iterator[tuple[Line, Line, list[Difference]]]:
        """Lines that stand in the place of one of the original's and differ from it by small things.

        A number, an operator, an attribute of the same object, an argument, a factor, a cast or an index that is lost,
        arguments that are exchanged. What was written anew, added, or named otherwise is no alteration.
        """
        known = {node.id for node in walked(self.theirs) if isinstance(node, ast.Name)} | parameters(self.theirs)
        aliases = dict(_aliases(self.original))
        for here, there in self._replaced():
            if not _begin(differences(here.node, there.node, known, aliases)):
                continue
            found = _begin(differences(here.plain, there.plain, known, aliases))
            if len(found) > 1 and rearranged(here.node, there.node):
                found = [
                    Difference(f"'{here.text[:_SHOWN]}' has the parts of '{there.text[:_SHOWN]}' in another order")
                ]
            if 0 < len(found) <= _FEW and None not in found and self._in_place(here, there):
                yield here, there, [one for one in found if one is not None]

    @cached_property
    def _apart(self) -> tuple[set[str], set[str]]:
        """What only the copy says, and what only the original says, in whatever spelling."""
        mine, original = self._codes
        ours = {line.code: code(line.plain) for line in self.mine if line.code not in original}
        theirs = {line.code: code(line.plain) for line in self.original if line.code not in mine}
        both = set(ours.values()) & set(theirs.values())
        new, lost = ({said for said, spelt in one.items() if spelt not in both} for one in (ours, theirs))
        return new, lost

    def _replaced(self) -> Iterator[tuple[Line, Line]]:
        """Lines of one kind between the same lines; and, wherever they stand, long ones that set the same name."""
        new, lost = self._apart
        seen: set[tuple[int, int]] = set()
        for here, there in self._standing():
            seen.add((here.number, there.number))
            yield here, there
        gone = [line for line in self.original if line.code in lost and _long(line)]
        for here in (line for line in self.mine if line.code in new and _long(line)):
            like = [there for there in gone if _sets(there) == _sets(here) != ""]
            if len(like) == 1 and (here.number, like[0].number) not in seen:
                yield here, like[0]

    def _standing(self) -> Iterator[tuple[Line, Line]]:
        new, lost = self._apart
        for mine, original in self.rewritten_blocks():
            for here, there in product(mine, original):
                if here.kind is there.kind and here.code in new and there.code in lost:
                    yield here, there

    def beside_the_same(self, here: Line, there: Line) -> bool:
        """Whether the line before, or the one after, is the same in both: else the lines were written anew."""
        mine, original = self.mine.index(here), self.original.index(there)
        ours, theirs = (["", *codes, ""] for codes in (self._mine, self._originals))
        return ours[mine] == theirs[original] or ours[mine + 2] == theirs[original + 2]

    def _in_place(self, here: Line, there: Line) -> bool:
        """Whether two lines do the same: blocks share a statement, and short lines stand in a function that is kept."""
        if here.inside or there.inside:
            return bool(set(here.inside) & set(there.inside))
        return self.likeness >= 0.5 or there.long

    def exchanged(self) -> Iterator[tuple[Line, Line]]:
        """Two lines that follow each other, the other way round than in the original, where one needs the other."""
        ours = Counter(pairwise(self._mine))
        theirs = Counter(pairwise(self._originals))
        for first, second in pairwise(self.original):
            way, back = (first.code, second.code), (second.code, first.code)
            turned = ours[way] < theirs[way] and ours[back] > theirs[back]
            if turned and depend(first.node, second.node):
                place = next(number for number, pair in enumerate(pairwise(self._mine)) if pair == back)
                yield self.mine[place], first
                return

    def unset(self) -> Iterator[Line]:
        """Lines that change a name from what it was, and that the copy lacks between one that sets it and one that
        reads it, both of the original.
        """
        mine = self._codes[0]
        for number, line in enumerate(self.original):
            name = changed(line.node)
            if not name or line.code in mine:
                continue
            before = [one for one in self.original[:number] if name in written(one.node)]
            after = next((one for one in self.original[number + 1 :] if name in names_read(one.node)), None)
            if not before or after is None or not {before[-1].code, after.code} <= mine:
                continue
            start, end = self._mine.index(before[-1].code), self._mine.index(after.code)
            if start < end and not any(name in written(one.node) for one in self.mine[start + 1 : end]):
                yield line

    def left_out(self) -> Iterator[list[Line]]:
        """Lines of the original that the copy does not have, a few at a time, between lines that it has."""
        mine = self._codes[0]
        for tag, _, _, start, end in self._blocks:
            block = self.original[start:end]
            moved = any(line.code in mine and not _asks(line) for line in block)
            if tag == "insert" and len(block) <= _BLOCK and not moved:
                yield block

    @cached_property
    def _made(self) -> set[str]:
        """The names that lines of the copy alone set."""
        original = self._codes[1]
        return {name for line in self.mine if line.code not in original for name in written(line.node)}

    def discarded(self) -> Iterator[tuple[Line, Line]]:
        """Calls whose result the original keeps, and the copy throws away."""
        mine, original = self._codes
        kept = {
            code(line.node.value): line
            for line in self.original
            if isinstance(line.node, (ast.Assign, ast.Return)) and line.node.value and line.code not in mine
        }
        for here in self.mine:
            call = here.node.value if isinstance(here.node, ast.Expr) else None
            if isinstance(call, ast.Call) and here.code not in original and code(call) in kept:
                yield here, kept[code(call)]

    def recut(self) -> Iterator[tuple[Line, Line]]:
        """Lines that cut into halves what the original takes every second element of, or the other way round."""
        mine, original = self._codes
        theirs = [line for line in self.original if line.code not in mine and _sets(line)]
        for here in (line for line in self.mine if line.code not in original):
            for there in theirs:
                if _sets(here) == _sets(there) and {_cut(here.node), _cut(there.node)} == {_STEPS, _HALVES}:
                    yield here, there

    def rewritten_blocks(self) -> Iterator[tuple[Sequence[Line], Sequence[Line]]]:
        """Lines of the copy, and those of the original that they stand in the place of."""
        for tag, first, last, start, end in self._blocks:
            if tag == "replace":
                yield self.mine[first:last], self.original[start:end]

    def rewritten(self) -> Iterator[tuple[Line, Line]]:
        """Lines that stand where the original sets the same name to another value, in words that the original knows."""
        known = {node.id for node in walked(self.theirs) if isinstance(node, ast.Name)} | parameters(self.theirs)
        for mine, original in self.rewritten_blocks():
            if len(mine) == len(original) == 1:
                here, there = mine[0], original[0]
                read = names_read(here.node)
                if _sets(here) == _sets(there) != "" and read <= known and not read & self._made:
                    yield here, there


def _begin(found: Iterator[Difference | None]) -> list[Difference | None]:
    """The first differences: so many that nothing behind them could make them few and small again."""
    first: list[Difference | None] = []
    for one in found:
        first.append(one)
        if len(first) > _FEW or (len(first) > 1 and None in first):
            break
    return first


def _cut(node: ast.AST) -> str:
    """How a statement takes a tensor apart; empty where it does not."""
    slices = [inner for inner in walked(node) if isinstance(inner, ast.Slice)]
    if any(one.step is not None for one in slices):
        return _STEPS
    calls = (inner.func for inner in walked(node) if isinstance(inner, ast.Call))
    parted = any(isinstance(one, ast.Attribute) and one.attr in {"chunk", "split", "tensor_split"} for one in calls)
    return _HALVES if parted or any(one.lower or one.upper for one in slices) else ""


def _long(line: Line) -> bool:
    return line.kind is ast.Assign and line.long


def _asks(line: Line) -> bool:
    """Whether a line is a condition, which may be asked again."""
    return issubclass(line.kind, (ast.If, ast.While))


def _sets(line: Line) -> str:
    return code(line.node.targets[0]) if isinstance(line.node, ast.Assign) else ""


def _aliases(lines: Sequence[Line]) -> Iterator[tuple[str, str]]:
    """Names that the original gives to what has a name already."""
    for line in lines:
        match line.node:
            case ast.Assign([ast.Name(name)], ast.Name(other)):
                yield name, other
