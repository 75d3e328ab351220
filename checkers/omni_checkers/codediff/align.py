"""A function next to the one that it was copied from: their statements, paired."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property, partial
from itertools import product, zip_longest

from omni_checkers.codediff.fingerprint import (
    fingerprint,
    name_updated,
    names_known,
    names_read,
    names_set,
    names_stored,
    parameters,
    size_of,
    unparse_cached,
)
from omni_checkers.codediff.normalize import normalize
from omni_checkers.engine.files import rebuilt, remembered

# Nodes of a statement that is recognised wherever it stands.
_LONG = 8
# Statements that are left out together: more were left out on purpose.
_BLOCK = 3


@dataclass(eq=False)
class Statement:
    """A statement without its body: an assignment, or the head of a block.

    Attributes:
        kind: of the whole statement.
        block: the statements inside.
    """

    node: ast.AST
    number: int
    kind: type[ast.stmt]
    block: tuple[ast.stmt, ...] = ()

    @cached_property
    def code(self) -> int:
        """Its fingerprint."""
        return fingerprint(self.node)

    @cached_property
    def inside(self) -> tuple[int, ...]:
        """The fingerprints of the block."""
        return tuple(map(fingerprint, self.block))

    @cached_property
    def text(self) -> str:
        """Its text, to be shown."""
        return unparse_cached(self.node)

    @cached_property
    def long(self) -> bool:
        """Return whether it says so much that it is recognised wherever it stands."""
        return size_of(self.node) >= _LONG

    @cached_property
    def normal(self) -> ast.AST:
        """Node in its normal form."""
        return normalize(self.node)

    @cached_property
    def target(self) -> int | None:
        """The fingerprint of what an assignment sets; None for other statements."""
        return fingerprint(self.node.targets[0]) if isinstance(self.node, ast.Assign) else None

    @property
    def assigns(self) -> bool:
        """Return whether it is an assignment that is recognised wherever it stands."""
        return self.kind is ast.Assign and self.long


@remembered
def statements_of(function: ast.FunctionDef) -> list[Statement]:
    """Return the statements of a function, with those inside others; those that only log, import or raise left out."""
    return list(_statements(function.body))


def _statements(body: Sequence[ast.stmt]) -> Iterator[Statement]:
    for node in _returned_at_once(body):
        match node:
            case ast.Expr(ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Raise() | ast.Assert():
                continue
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name)))) if "log" in name or name == "warnings":
                continue
            case ast.FunctionDef() | ast.ClassDef():
                continue
            case ast.If() | ast.While():
                yield Statement(node.test, node.lineno, type(node), tuple(node.body))
            case ast.For():
                head = ast.Tuple([node.target, node.iter], ast.Load())
                yield Statement(head, node.lineno, ast.For, tuple(node.body))
            case ast.With() | ast.Try():
                pass
            case ast.AnnAssign(target, _, value) if value is not None:
                yield Statement(ast.Assign([target], value, lineno=node.lineno), node.lineno, ast.Assign)
            case _:
                yield Statement(node, node.lineno, type(node))
        for field in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, field, ()))


def _returned_at_once(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements; a name that is set only to be returned is left out."""
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


@dataclass(frozen=True)
class ClonePair:
    """A function, and the one that it was copied from."""

    ours: ast.FunctionDef
    theirs: ast.FunctionDef

    @cached_property
    def code(self) -> tuple[int, int]:
        """The fingerprints of both functions."""
        return fingerprint(self.ours), fingerprint(self.theirs)

    @cached_property
    def mine(self) -> list[Statement]:
        """The statements of the copy."""
        return statements_of(self.ours)

    @cached_property
    def original(self) -> list[Statement]:
        """The statements of the original."""
        return statements_of(self.theirs)

    @cached_property
    def sequences(self) -> tuple[list[int], list[int]]:
        """The fingerprints of both, in order."""
        return [one.code for one in self.mine], [one.code for one in self.original]

    @cached_property
    def codes(self) -> tuple[frozenset[int], frozenset[int]]:
        """The fingerprints of both."""
        return frozenset(self.sequences[0]), frozenset(self.sequences[1])

    @cached_property
    def known(self) -> set[str]:
        """The names that the original mentions."""
        return names_known(self.theirs)

    @cached_property
    def likeness(self) -> float:
        """Return the share of the original that the copy still has, from 0 to 1."""
        if self.sequences[0] == self.sequences[1]:
            return 1.0
        same = sum(last - first for tag, first, last, _, _ in self._blocks if tag == "equal")
        return same / max(1, len(self.original))

    def may_be_like(self, least: float) -> bool:
        """Return whether the likeness can reach `least`; cheaper than to compute it."""
        mine, original = map(Counter, self.sequences)
        return (mine & original).total() >= least * max(1, len(self.original))

    @cached_property
    def _blocks(self) -> Sequence[tuple[str, int, int, int, int]]:
        return SequenceMatcher(None, *self.sequences, autojunk=False).get_opcodes()

    def rewritten_blocks(self) -> Iterator[tuple[Sequence[Statement], Sequence[Statement]]]:
        """Yield statements of the copy, and those of the original that they replace."""
        for tag, first, last, start, end in self._blocks:
            if tag == "replace":
                yield self.mine[first:last], self.original[start:end]

    def missing_blocks(self) -> Iterator[Sequence[Statement]]:
        """Yield statements of the original that the copy lacks, a few at a time, between statements that it has."""
        for tag, _, _, start, end in self._blocks:
            block = self.original[start:end]
            moved = any(one.code in self.codes[0] and not issubclass(one.kind, (ast.If, ast.While)) for one in block)
            if tag == "insert" and len(block) <= _BLOCK and not moved:
                yield block

    def missing_updates(self) -> Iterator[Statement]:
        """Yield statements that compute the next value of a name, and that the copy lacks between the statement that
        sets the name and the one that reads it, both of the original.
        """
        mine, sequence = self.codes[0], self.sequences[0]
        for number, one in enumerate(self.original):
            name = name_updated(one.node)
            if not name or one.code in mine:
                continue
            before = next((other for other in self.original[number - 1 :: -1] if name in names_set(other.node)), None)
            after = next((other for other in self.original[number + 1 :] if name in names_read(other.node)), None)
            if not number or before is None or after is None or not {before.code, after.code} <= mine:
                continue
            start, end = sequence.index(before.code), sequence.index(after.code)
            if start < end and not any(name in names_set(other.node) for other in self.mine[start + 1 : end]):
                yield one

    def replaced(self) -> Iterator[tuple[Statement, Statement]]:
        """Yield statements of one kind between the same statements; and long ones that set the same name, anywhere.

        Those that the other has in another spelling are left out.
        """
        new, lost = self._apart
        seen: set[tuple[int, int]] = set()
        for mine, original in self.rewritten_blocks():
            for here, there in product(mine, original):
                if here.kind is there.kind and here.code in new and there.code in lost:
                    seen.add((here.number, there.number))
                    yield here, there
        gone = [one for one in self.original if one.code in lost and one.assigns]
        for here in (one for one in self.mine if one.code in new and one.assigns) if gone else ():
            like = [there for there in gone if there.target == here.target]
            if len(like) == 1 and (here.number, like[0].number) not in seen:
                yield here, like[0]

    @cached_property
    def _apart(self) -> tuple[set[int], set[int]]:
        """The fingerprints that only the copy has, and those that only the original has, in whatever spelling."""
        mine, original = self.codes
        ours = {one.code: fingerprint(one.normal) for one in self.mine if one.code not in original}
        theirs = {one.code: fingerprint(one.normal) for one in self.original if one.code not in mine}
        both = {*ours.values()} & {*theirs.values()}
        new, lost = ({code for code, normal in side.items() if normal not in both} for side in (ours, theirs))
        return new, lost


def stands_in(reference: ast.FunctionDef, function: ast.FunctionDef, line: int) -> bool:
    """Return whether a reference has the statement in a line of a function, after or before the same other one."""
    theirs = [None, *(fingerprint(one.normal) for one in statements_of(reference)), None]
    mine = statements_of(function)
    ours = [None, *(fingerprint(one.normal) for one in mine), None]
    places = [place for place, one in enumerate(mine, 1) if one.number == line]
    return any(
        ours[here] == theirs[there] and (ours[here - 1] == theirs[there - 1] or ours[here + 1] == theirs[there + 1])
        for here in places
        for there in range(1, len(theirs) - 1)
    )


_locals: dict[tuple[int, int], Mapping[str, str]] = {}


def rename_locals(pair: ClonePair) -> ClonePair:
    """Return the pair with the original's names for the copy's locals, as far as statements show which are meant.

    Two locals are one where long statements are the same but for them. Statements keep their places.
    """
    while names := _same_locals(pair):
        pair = ClonePair(rebuilt(pair.ours, partial(_renamed, names)), pair.theirs)
    return pair


def _same_locals(pair: ClonePair) -> Mapping[str, str]:
    """Match each local of the copy with its name in the original, each once."""
    if pair.code not in _locals:
        _locals[pair.code] = _matched_locals(pair)
    return _locals[pair.code]


def _matched_locals(pair: ClonePair) -> dict[str, str]:
    mine, original = _own_locals(pair.ours, pair.theirs), _own_locals(pair.theirs, pair.ours)
    if not mine or not original:
        return {}
    here, there = pair.codes
    lost: dict[int, tuple[str, ...]] = {}
    for one in pair.original:
        if one.code not in here:
            shape, names = _shape(one.node, original)
            lost.setdefault(shape, names)
    found: Counter[tuple[str, str]] = Counter()
    for one in pair.mine:
        if one.code not in there and one.long:
            shape, names = _shape(one.node, mine)
            pairs = {*zip(names, lost.get(shape, ()), strict=False)}
            if len(pairs) == len(dict(pairs)) == len({other for _, other in pairs}):
                found.update(pairs)
    renamed: dict[str, str] = {}
    for (name, other), _ in found.most_common():
        if name not in renamed and other not in renamed.values():
            renamed[name] = other
    return renamed


def _shape(node: ast.AST, names: set[str]) -> tuple[int, tuple[str, ...]]:
    """Return the fingerprint of code without these names, and the names in order."""
    held: list[str] = []

    def without(inner: ast.AST) -> ast.AST | None:
        if isinstance(inner, ast.Name) and inner.id in names:
            held.append(inner.id)
            return ast.Name("", inner.ctx)
        return None

    return fingerprint(rebuilt(node, without)), tuple(held)


def _own_locals(function: ast.FunctionDef, other: ast.FunctionDef) -> set[str]:
    """Return the locals of a function that the other does not mention."""
    return {*names_stored(function)} - names_known(other) - parameters(function)


def _renamed(names: Mapping[str, str], node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Name) and node.id in names:
        return ast.copy_location(ast.Name(names[node.id], node.ctx), node)
    return None
