"""Changes of a copy against its original that nobody makes on purpose."""

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import pairwise
from typing import TypeVar

from omni_checkers.codediff.align import ClonePair, Statement
from omni_checkers.codediff.edits import Change, Edit, TreeDiff
from omni_checkers.codediff.fingerprint import depend, fingerprint, names_read, names_set, unparse_cached
from omni_checkers.codediff.valueflow import misplaced, rearranged, split_up
from omni_checkers.engine.files import walked, within

# In one statement: more edits than these were meant.
_FEW = 3
# With less of the original, a function was rewritten.
_COPIED = 0.6
_SHOWN = 90
_STEPS, _HALVES = "every second element", "halves"
# They return what they are called on.
_SAME_VALUE = {"contiguous", "clone", "cpu"}


@dataclass(frozen=True)
class Alteration:
    """A statement that replaces one of the original's, and differs from it by small edits."""

    here: Statement
    there: Statement
    edits: Sequence[Edit]


Result = TypeVar("Result", Alteration, Change)


def once_per_code(compare: Callable[[ClonePair], Iterator[Result]]) -> Callable[[ClonePair], list[Result]]:
    """Make a function compare pairs once that are the same code, such as functions of files for two devices."""
    known: dict[tuple[int, int], tuple[ClonePair, list[Result]]] = {}

    @wraps(compare)
    def asked(pair: ClonePair) -> list[Result]:
        if pair.code not in known:
            known[pair.code] = pair, list(compare(pair))
        first, found = known[pair.code]
        return found if first is pair else [_moved(one, first, pair) for one in found]

    return asked


def _moved(one: Result, pair: ClonePair, other: ClonePair) -> Result:
    """Return the same change of another pair with the same code."""
    if isinstance(one, Change):
        line = _line_in(pair.ours, one.line, other.ours)
        return Change(one.kind, one.what, line, _line_in(pair.theirs, one.original_line, other.theirs))
    here, there = pair.mine.index(one.here), pair.original.index(one.there)
    return Alteration(other.mine[here], other.original[there], one.edits)


def _line_in(function: ast.FunctionDef, line: int, other: ast.FunctionDef) -> int:
    pairs = zip(walked(function), walked(other), strict=True)
    return next((getattr(two, "lineno", 0) for one, two in pairs if getattr(one, "lineno", 0) == line), other.lineno)


@once_per_code
def alterations(pair: ClonePair) -> Iterator[Alteration]:
    """Yield the statements that differ by small edits from the original's that they replace.

    A number, an operator, an attribute of the same object, an argument, a factor, a cast or an index that is lost,
    arguments that are exchanged. Rewritten, added or renamed statements are not alterations.
    """
    diff = TreeDiff(pair.known, dict(_aliases(pair.original)))
    for here, there in pair.replaced():
        if not _first(diff.edits(here.node, there.node)):
            continue
        found = _first(diff.edits(here.normal, there.normal))
        if len(found) > 1 and rearranged(here.node, there.node):
            found = [Edit(f"'{here.text[:_SHOWN]}' has the parts of '{there.text[:_SHOWN]}' in another order")]
        small = [one for one in found if one is not None]
        if any(one.kept for one in small) and split_up(pair.ours, here.number, pair.theirs, there.number):
            continue
        if 0 < len(found) <= _FEW and len(small) == len(found) and _in_place(pair, here, there):
            yield Alteration(here, there, small)


@once_per_code
def changes(pair: ClonePair) -> Iterator[Change]:
    """Yield what differs in other ways than by an alteration: values in other places, halves for every second element,
    flags that are turned, results that are dropped, and statements in another order.
    """
    yield from misplaced(pair.ours, pair.theirs)
    yield from recut(pair)
    yield from switched(pair.ours, pair.theirs)
    yield from slips(pair)


def slips(pair: ClonePair) -> Iterator[Change]:
    """Yield the calls whose result the original keeps and the copy drops, and two statements in another order."""
    yield from discarded(pair)
    yield from exchanged(pair)


def left_out(pair: ClonePair) -> Iterator[Sequence[Statement]]:
    """Yield statements of the original that the copy lacks between those that it has; the first changes a value that
    the copy continues with, the others stand with it.
    """
    found: set[int] = set()
    for block in pair.missing_blocks() if pair.likeness >= _COPIED else ():
        first = next((place for place, one in enumerate(block) if _changes_a_value(pair, one)), None)
        if first is not None:
            found.add(block[first].number)
            yield [block[first], *block[:first], *block[first + 1 :]]
    yield from ([one] for one in pair.missing_updates() if one.number not in found and _changes_a_value(pair, one))


def exchanged(pair: ClonePair) -> Iterator[Change]:
    """Yield the first of two statements that follow each other in the other order, where one needs the other."""
    ours, theirs = (Counter(pairwise(codes)) for codes in pair.sequences)
    for first, second in pairwise(pair.original):
        order, back = (first.code, second.code), (second.code, first.code)
        if ours[order] < theirs[order] and ours[back] > theirs[back] and depend(first.node, second.node):
            here = pair.mine[list(pairwise(pair.sequences[0])).index(back)]
            what = f"'{here.text}' is done before '{first.text}', which reads or sets the same"
            yield Change("exchanged-statements", what, here.number, first.number)
            return


def discarded(pair: ClonePair) -> Iterator[Change]:
    """Yield calls whose result the original keeps, and the copy drops."""
    mine, original = pair.codes
    kept = {
        fingerprint(one.node.value): one
        for one in pair.original
        if isinstance(one.node, (ast.Assign, ast.Return)) and one.node.value and one.code not in mine
    }
    for here in pair.mine:
        call = here.node.value if isinstance(here.node, ast.Expr) else None
        if isinstance(call, ast.Call) and here.code not in original and (there := kept.get(here.code)) is not None:
            what = f"the result of '{here.text}' is discarded, but '{there.text}' keeps it"
            yield Change("discarded-result", what, here.number, there.number)


def recut(pair: ClonePair) -> Iterator[Change]:
    """Yield statements that halve a value of which the original takes every second element, or the reverse."""
    mine, original = pair.codes
    theirs = [one for one in pair.original if one.code not in mine and one.target and _cut(one.node)]
    for here in (one for one in pair.mine if one.code not in original) if theirs else ():
        for there in theirs:
            if here.target == there.target and {_cut(here.node), _cut(there.node)} == {_STEPS, _HALVES}:
                what = f"'{here.text}' takes other elements than '{there.text}'"
                yield Change("other-elements", what, here.number, there.number)


def switched(ours: ast.AST, theirs: ast.AST) -> Iterator[Change]:
    """Yield arguments by name that are True or False, where `theirs` passes the other one, and nothing else, by that
    name.

    Whom they are passed to does not count: a kernel has the parameters of plain code, under the same names.
    """
    known = _passed(theirs)
    for name, passed in _passed(ours).items():
        others = known.get(name, [])
        for one in passed if len({*map(_flag, others)}) == 1 else ():
            if {_flag(one), _flag(others[0])} == {True, False}:
                what = f"'{unparse_cached(one)}', but the original uses '{unparse_cached(others[0])}' throughout"
                yield Change("turned-switch", what, one.value.lineno, others[0].value.lineno)


def rewritten(pair: ClonePair) -> Iterator[tuple[Statement, Statement]]:
    """Yield statements that replace one that sets the same name to another value, in words that the original knows."""
    made = {name for one in pair.mine if one.code not in pair.codes[1] for name in names_set(one.node)}
    for mine, original in pair.rewritten_blocks():
        here, there = mine[0], original[0]
        alone = len(mine) == len(original) == 1 and here.target == there.target is not None
        if alone and names_read(here.node) <= pair.known - made:
            yield here, there


def _first(found: Iterator[Edit | None]) -> list[Edit | None]:
    """Return the first edits: so many that nothing behind them could make them few and small again."""
    first: list[Edit | None] = []
    for one in found:
        first.append(one)
        if len(first) > _FEW or (len(first) > 1 and None in first):
            break
    return first


def _in_place(pair: ClonePair, here: Statement, there: Statement) -> bool:
    """Return whether two statements do the same: blocks share a statement, and short ones are in a function that is
    kept.
    """
    if here.inside or there.inside:
        return bool({*here.inside} & {*there.inside})
    return pair.likeness >= 0.5 or there.long


def _aliases(statements: Sequence[Statement]) -> Iterator[tuple[str, str]]:
    """Yield names that the original gives to what has a name already."""
    for one in statements:
        match one.node:
            case ast.Assign([ast.Name(name)], ast.Name(other)):
                yield name, other


def _changes_a_value(pair: ClonePair, one: Statement) -> bool:
    """Return whether a statement of the original changes what the copy continues with."""
    match one.node:
        case ast.Assign([_], ast.Call(ast.Attribute(_, method))) if method in _SAME_VALUE:
            return False
        case ast.AugAssign(target):
            changed: ast.AST = target
        case ast.Expr(ast.Call(ast.Attribute(inner, name))) if name.endswith("_"):
            changed = inner
        case ast.Assign([target], value) if any(fingerprint(one) == fingerprint(target) for one in walked(value)):
            changed = target
        case _:
            return False
    return bool({node.id for node in within(changed, ast.Name)} & names_read(pair.ours))


def _cut(node: ast.AST) -> str:
    """Return how a statement splits a tensor; empty if it does not."""
    slices = list(within(node, ast.Slice))
    if any(one.step is not None for one in slices):
        return _STEPS
    parted = any(one.attr in {"chunk", "split", "tensor_split"} for one in within(node, ast.Attribute))
    return _HALVES if parted or any(one.lower or one.upper for one in slices) else ""


def _passed(function: ast.AST) -> Mapping[str, list[ast.keyword]]:
    found: defaultdict[str, list[ast.keyword]] = defaultdict(list)
    for keyword in within(function, ast.keyword):
        if keyword.arg is not None:
            found[keyword.arg].append(keyword)
    return found


def _flag(passed: ast.keyword) -> bool | None:
    """True or False; None for anything else."""
    value = passed.value.value if isinstance(passed.value, ast.Constant) else None
    return value if isinstance(value, bool) else None
